//! Rules on `Cargo.toml`: versions and paths of our own crates are in the workspace table only.

use super::{Finding, Source};

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let members = || sources.iter().filter(|source| source.path.ends_with("Cargo.toml"));
    let names: Vec<_> = members().filter_map(package_name).collect();
    members().flat_map(|manifest| internal_dependencies(manifest, &names)).collect()
}

/// The names of all packages of the workspace, with the folders of their manifests.
pub(super) fn packages(sources: &[Source]) -> Vec<(&str, &str)> {
    let manifests =
        sources.iter().filter_map(|source| Some((source.path.strip_suffix("Cargo.toml")?, source)));
    manifests.filter_map(|(folder, source)| Some((package_name(source)?, folder))).collect()
}

fn package_name(manifest: &Source) -> Option<&str> {
    let package = manifest.text.lines().skip_while(|line| *line != "[package]");
    let name = package.filter_map(|line| line.strip_prefix("name = ")).next();
    name.map(|name| name.trim_matches('"'))
}

fn internal_dependencies(manifest: &Source, names: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut table = "";
    for (number, line) in manifest.lines() {
        if line.starts_with('[') {
            table = line.trim_end();
        }
        let key = line.split(['.', ' ', '=']).next().unwrap_or_default();
        let dependency = table.ends_with("dependencies]") && table != "[workspace.dependencies]";
        if dependency && names.contains(&key) && !is_allowed(line, table.ends_with("dev-dependencies]")) {
            findings.push(
                manifest.finding(number, format!("take {key} from the workspace: {key}.workspace = true")),
            );
        }
    }
    findings
}

/// For tests alone, a path without a version is right too: crates that test each other could not be published else.
fn is_allowed(dependency: &str, for_tests: bool) -> bool {
    let inherited = dependency.replace(' ', "").contains("workspace=true");
    inherited || (for_tests && dependency.contains("path = ") && !dependency.contains("version = "))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{brief, source};
    use super::*;

    const ROOT: &str = "[package]\nname = \"t\"\n[dependencies]\nt-a.workspace = true\n\
        [workspace.dependencies]\nt-a = { path = \"t-a\", version = \"0.1.0\" }\n";

    #[test]
    fn internal_dependencies_come_from_the_workspace() {
        let good = "[package]\nname = \"t-a\"\n[dependencies]\nt = { workspace = true, optional = true }\nother = \"1\"\n";
        let sources = [source("Cargo.toml", ROOT), source("t-a/Cargo.toml", good)];
        assert_eq!(check(&sources), []);
        assert_eq!(packages(&sources), [("t", ""), ("t-a", "t-a/")]);
    }

    #[test]
    fn a_path_or_a_version_of_ours_is_found_in_every_table() {
        let bad = "[package]\nname = \"t-a\"\n[dependencies]\nt = \"0.1\"\n[dev-dependencies]\nt = { path = \"..\", version = \"0.1\" }\n";
        let sources = [source("Cargo.toml", ROOT), source("t-a/Cargo.toml", bad)];
        let message = "take t from the workspace: t.workspace = true";
        assert_eq!(brief(check(&sources)), [format!("4: {message}"), format!("6: {message}")]);
    }

    #[test]
    fn for_tests_a_path_without_a_version_is_right() {
        let good = "[package]\nname = \"t-a\"\n[dev-dependencies]\nt = { path = \"..\" }\n";
        assert_eq!(check(&[source("Cargo.toml", ROOT), source("t-a/Cargo.toml", good)]), []);
    }
}
