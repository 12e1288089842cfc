//! What `cargo metadata` knows about this workspace.

use std::path::PathBuf;

use serde_json::Value;
use xshell::cmd;

use crate::util::{self, Result};

/// The workspace as cargo sees it.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) members: Vec<Member>,
    pub(crate) target: PathBuf,
}

/// One package of the workspace.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) features: Vec<String>,
    pub(crate) examples: Vec<String>,
}

impl Workspace {
    /// Asks cargo.
    pub(crate) fn load() -> Result<Self> {
        let (sh, cargo) = (util::shell()?, util::cargo());
        let text = cmd!(sh, "{cargo} metadata --no-deps --format-version 1 --offline").quiet().read()?;
        let metadata: Value = serde_json::from_str(&text)?;
        let members = array(&metadata, "packages").iter().map(member).collect::<Result<_>>()?;
        Ok(Self { members, target: PathBuf::from(text_of(&metadata, "target_directory")?) })
    }
}

fn member(package: &Value) -> Result<Member> {
    let is_example = |target: &&Value| array(target, "kind").iter().any(|kind| kind == "example");
    let examples = array(package, "targets").iter().filter(is_example).map(|target| text_of(target, "name"));
    Ok(Member {
        name: text_of(package, "name")?,
        features: features(package),
        examples: examples.collect::<Result<_>>()?,
    })
}

fn features(package: &Value) -> Vec<String> {
    let table = package.get("features").and_then(Value::as_object);
    table.map(|table| table.keys().cloned().collect()).unwrap_or_default()
}

fn array<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn text_of(value: &Value, name: &str) -> Result<String> {
    let text = value.get(name).and_then(Value::as_str);
    Ok(text.ok_or_else(|| format!("cargo metadata without `{name}`"))?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_crate_and_the_facade_are_members() {
        let workspace = Workspace::load().unwrap();
        let find = |name: &str| workspace.members.iter().find(|member| member.name == name).unwrap();
        assert_eq!(find("xtask").features, [""; 0]);
        assert!(find("throttle").features.contains(&"memory".to_owned()));
    }
}
