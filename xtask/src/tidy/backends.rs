//! The backend crates have the same files with the same jobs: who has seen one has seen all.

use super::{Finding, Source};

const FILES: &[&str] = &[
    "Cargo.toml",
    "README.md",
    "src/lib.rs",
    "src/config.rs",
    "src/backend.rs",
    "src/error.rs",
    "src/lock.rs",
    "tests/conformance.rs",
];

const CRATES: &[&str] = &["throttle-memory", "throttle-redis", "throttle-postgres", "throttle-etcd"];

/// Files that a backend crate does without, and why.
const WITHOUT: &[(&str, &str, &str)] =
    &[("throttle-memory", "src/error.rs", "the embedded store cannot fail: its error family is Infallible")];

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let has = |path: &str| sources.iter().any(|source| source.path == path);
    let begun =
        CRATES.iter().filter(|name| FILES.iter().any(|file| is_own(file) && has(&format!("{name}/{file}"))));
    begun.flat_map(|name| missing(name, has)).collect()
}

/// Whether only a backend crate has such a file: one that has none of them is still an empty package.
fn is_own(file: &str) -> bool {
    !["Cargo.toml", "README.md", "src/lib.rs"].contains(&file)
}

fn missing(name: &str, has: impl Fn(&str) -> bool) -> Vec<Finding> {
    let excused = |file: &str| WITHOUT.iter().any(|(crate_, without, _)| *crate_ == name && *without == file);
    let wanted = FILES.iter().filter(|file| !excused(file)).map(|file| format!("{name}/{file}"));
    let message = "every backend crate has this file";
    wanted
        .filter(|path| !has(path))
        .map(|path| Finding { path, line: 0, message: message.to_owned() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::source;
    use super::*;

    #[test]
    fn a_missing_file_is_found_in_the_crates_that_exist() {
        let whole: Vec<_> = FILES.iter().map(|file| source(&format!("throttle-redis/{file}"), "")).collect();
        assert_eq!(check(&whole), []);
        let found = check(whole.get(..FILES.len() - 1).unwrap());
        let paths: Vec<_> = found.iter().map(|finding| finding.path.as_str()).collect();
        assert_eq!(paths, ["throttle-redis/tests/conformance.rs"]);
        assert_eq!(check(whole.get(..3).unwrap()), []);
    }

    #[test]
    fn an_excuse_names_a_crate_and_a_file_of_the_rule() {
        for (crate_, file, why) in WITHOUT {
            assert!(CRATES.contains(crate_) && FILES.contains(file) && why.len() > 10);
        }
    }
}
