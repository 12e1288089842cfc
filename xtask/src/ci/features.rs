//! The `features` leg: each feature alone builds without a warning, and so does none at all.

use xshell::{Shell, cmd};

use super::weight;
use crate::util::{self, Result};
use crate::workspace::{Member, Workspace};

/// Checks every package that has features, then what the light packages pull in.
pub(crate) fn run(sh: &Shell) -> Result<()> {
    for member in Workspace::load()?.members {
        for features in choices(&member) {
            check(sh, &member.name, features)?;
        }
    }
    weight::run(sh)
}

/// No feature, then each alone; nothing for a package without features, which the clippy leg covers.
fn choices(member: &Member) -> Vec<Option<&str>> {
    let alone = member.features.iter().map(String::as_str).filter(|feature| *feature != "default").map(Some);
    let choices: Vec<_> = std::iter::once(None).chain(alone).collect();
    if choices.len() == 1 { Vec::new() } else { choices }
}

fn check(sh: &Shell, package: &str, feature: Option<&str>) -> Result<()> {
    let cargo = util::cargo();
    let features = feature.map(|feature| ["--features", feature]);
    let features = features.as_ref().map(<[_; 2]>::as_slice).unwrap_or_default();
    Ok(cmd!(sh, "{cargo} clippy --quiet -p {package} --no-default-features {features...} -- -D warnings")
        .run()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(features: &[&str]) -> Member {
        Member {
            name: "m".to_owned(),
            features: features.iter().map(ToString::to_string).collect(),
            examples: Vec::new(),
        }
    }

    #[test]
    fn none_and_each_alone() {
        assert_eq!(choices(&member(&["default", "a", "b"])), [None, Some("a"), Some("b")]);
        assert_eq!(choices(&member(&[])), []);
    }
}
