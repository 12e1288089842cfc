//! Rules on Rust files: they say what they are, stay short, and leave out what hides faults.

use super::{Finding, Source};

const LINES: usize = 400;
const LINES_WITH_REASON: usize = 600;

/// Files that may have more than [`LINES`] lines, up to [`LINES_WITH_REASON`], and why.
const LONG: &[(&str, &str)] = &[];

/// What no Rust file has, and what to do instead. In two parts, so that this file has none of it either.
const REFUSED: &[(&str, &str, &str)] = &[
    ("deny(", "warnings)", "a new compiler must not break the build; CI denies warnings"),
    ("#[should_", "panic", "assert the error, not that something somewhere panicked"),
    ("#[ignore", "]", "say why: a reason for those who see it ignored"),
    ("TO", "DO", "finish it, or write down what is missing where users look"),
    ("FIX", "ME", "fix it, or write down what is missing where users look"),
    ("dbg", "!(", "residue of a search for a fault"),
];

pub(super) fn check(source: &Source) -> Vec<Finding> {
    if !source.is_rust() {
        return Vec::new();
    }
    [module_doc(source), length(source)].into_iter().flatten().chain(refused(source)).collect()
}

/// The first paragraph of the file is a module doc that ends as a sentence does; including the README is as good.
fn module_doc(source: &Source) -> Option<Finding> {
    let includes_readme = source.text.starts_with("#![doc = include_str!(");
    let is_compile_test = source.path.contains("tests/ui/");
    if includes_readme || is_compile_test {
        return None;
    }
    let lines = source.text.lines().map_while(|line| line.strip_prefix("//!"));
    let paragraph: Vec<_> = lines.map(str::trim).take_while(|line| !line.is_empty()).collect();
    let ends = paragraph.last().is_some_and(|line| line.ends_with(['.', '!', '?', ':']));
    (!ends).then(|| source.finding(1, "start the file with a module doc of at least one full sentence"))
}

/// Counts the lines before the unit tests.
fn length(source: &Source) -> Option<Finding> {
    let lines = source.text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count();
    let limit = if LONG.iter().any(|(path, _)| *path == source.path) { LINES_WITH_REASON } else { LINES };
    let message = || format!("{lines} lines before the tests, more than {limit}: one idea per file");
    (!source.is_test() && lines > limit).then(|| source.finding(limit + 1, message()))
}

fn refused(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in source.lines() {
        for (first, second, why) in REFUSED {
            let word = [*first, *second].concat();
            if line.contains(&word) {
                findings.push(source.finding(number, format!("`{word}` is refused: {why}")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::tests::{brief, source};
    use super::*;

    fn of_text(text: &str) -> Vec<String> {
        brief(check(&source("a/src/b.rs", text)))
    }

    #[test]
    fn a_file_starts_with_a_full_sentence() {
        let missing = ["1: start the file with a module doc of at least one full sentence"];
        assert_eq!(of_text("//! One idea,\n//! in two lines.\n//!\n//! more\n"), [""; 0]);
        assert_eq!(of_text("#![doc = include_str!(\"../README.md\")]\n"), [""; 0]);
        assert_eq!(of_text("//! Utilities\n//!\n//! A sentence.\n"), missing);
        assert_eq!(of_text("use std::fmt;\n"), missing);
        assert_eq!(of_text(""), missing);
    }

    #[test]
    fn long_files_are_counted_up_to_their_tests() {
        let doc = "//! Long.\n";
        let filler = "\n".repeat(LINES - 1);
        assert_eq!(of_text(&format!("{doc}{filler}#[cfg(test)]\n{filler}")), [""; 0]);
        let long = of_text(&format!("{doc}{filler}\n#[cfg(test)]\n"));
        assert_eq!(long, ["401: 401 lines before the tests, more than 400: one idea per file"]);
        let test = source("a/tests/b.rs", &format!("{doc}{filler}{filler}"));
        assert_eq!(brief(check(&test)), [""; 0]);
    }

    #[test]
    fn exceptions_are_within_the_hard_stop_and_say_why() {
        const { assert!(LINES < LINES_WITH_REASON) };
        assert!(LONG.iter().all(|(_, why)| why.len() > 10));
    }

    #[test]
    fn each_refused_word_is_found() {
        for (first, second, why) in REFUSED {
            let found = of_text(&format!("//! A.\n\n    {first}{second}\n"));
            assert_eq!(found, [format!("3: `{first}{second}` is refused: {why}")]);
        }
        assert_eq!(of_text("//! A.\n#[ignore = \"takes an hour\"]\n"), [""; 0]);
    }
}
