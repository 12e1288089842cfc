//! The project stands alone: no file of it names a folder of somebody's machine.

use super::{Finding, Source};

/// Folders of a machine, without the slash before them, so that this file names none either.
const MACHINE: &[&str] = &["work/", "home/", "root/", "Users/", "tmp/"];
/// Reference material that tests may use when it lies beside the checkout.
const BESIDE: &str = concat!("../", "shared");

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let tests_from =
        source.lines().find(|(_, line)| line.starts_with("#[cfg(test)]")).map(|(number, _)| number);
    let in_tests = |line: usize| source.is_test() || tests_from.is_some_and(|from| line >= from);
    let mut findings = Vec::new();
    for (number, line) in source.lines() {
        if names_machine(line) {
            findings.push(source.finding(number, "a path of one machine: use one inside the project"));
        }
        if line.contains(BESIDE) && !in_tests(number) {
            findings.push(source.finding(number, format!("only tests may use {BESIDE}")));
        }
    }
    findings
}

/// Whether an absolute path starts on the line: a slash that nothing of a longer path or address precedes.
fn names_machine(line: &str) -> bool {
    line.match_indices('/').any(|(at, _)| {
        let (before, after) = line.split_at(at);
        let starts = !before.ends_with(|c: char| c.is_alphanumeric() || "/.-_})>*".contains(c));
        starts && MACHINE.iter().any(|folder| after.trim_start_matches('/').starts_with(folder))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{brief, source};
    use super::*;

    #[test]
    fn absolute_paths_of_a_machine_are_found() {
        for folder in MACHINE {
            assert!(names_machine(&format!("read(\"/{folder}x\")")), "{folder}");
        }
        assert!(!names_machine("https://example.org/home/x and target/tmp/x and //! work/life"));
        assert!(!names_machine("read(\"src/lib.rs\")"));
    }

    #[test]
    fn only_tests_reach_beside_the_checkout() {
        let line = format!("read(\"{BESIDE}/x\")\n");
        let refused = format!("only tests may use {BESIDE}");
        assert_eq!(brief(check(&source("a/tests/b.rs", &line))), [""; 0]);
        assert_eq!(brief(check(&source("README.md", &line))), [format!("1: {refused}")]);
        let both = format!("{line}#[cfg(test)]\n{line}");
        assert_eq!(brief(check(&source("a/src/b.rs", &both))), [format!("1: {refused}")]);
    }
}
