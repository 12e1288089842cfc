//! The house rules as code: `cargo xtask ci tidy`, and a test. `CONTRIBUTING.md` gives the reasons.

mod backends;
mod docs;
mod manifests;
mod outside;
mod source;

use std::fs;

use xshell::cmd;

use crate::util::{self, Result};

/// One broken rule: where, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    /// Counted from 1; 0 for the whole file.
    line: usize,
    message: String,
}

/// A file of the project, with its path from the root.
#[derive(Debug)]
struct Source {
    path: String,
    text: String,
}

/// Checks every rule on every file; prints what it finds.
pub(crate) fn run() -> Result<()> {
    let findings = check()?;
    for Finding { path, line, message } in &findings {
        eprintln!("{path}:{line}: {message}");
    }
    if findings.is_empty() {
        return Ok(());
    }
    Err(format!("{} broken house rules; CONTRIBUTING.md gives the reasons", findings.len()).into())
}

fn check() -> Result<Vec<Finding>> {
    let (root, sources) = (util::root(), sources()?);
    let mut findings: Vec<_> = sources.iter().flat_map(source::check).collect();
    findings.extend(sources.iter().flat_map(outside::check));
    findings.extend(manifests::check(&sources));
    findings.extend(backends::check(&sources));
    findings.extend(docs::check(&sources, &|path| root.join(path).exists()));
    Ok(findings)
}

/// The text files that git knows, or would know.
fn sources() -> Result<Vec<Source>> {
    let sh = util::shell()?;
    let listed = cmd!(sh, "git ls-files -z --cached --others --exclude-standard").quiet().read()?;
    let paths = listed.split('\0').filter(|path| !path.is_empty());
    let read = |path: &str| {
        let bytes = fs::read(util::root().join(path)).ok()?;
        Some(Source { path: path.to_owned(), text: String::from_utf8(bytes).ok()? })
    };
    Ok(paths.filter_map(read).collect())
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether the file as a whole is test code.
    fn is_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests" || part == "tests.rs")
    }

    fn finding(&self, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, message: message.into() }
    }

    /// The lines, counted from 1.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that exists only here.
    pub(super) fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    /// `line: message` of each finding.
    pub(super) fn brief(findings: impl IntoIterator<Item = Finding>) -> Vec<String> {
        findings.into_iter().map(|Finding { line, message, .. }| format!("{line}: {message}")).collect()
    }

    #[test]
    fn this_project_keeps_its_rules() {
        assert_eq!(check().unwrap(), []);
    }

    #[test]
    fn this_file_is_among_the_sources() {
        let sources = sources().unwrap();
        assert!(sources.iter().any(|source| source.path == "xtask/src/tidy.rs" && source.is_rust()));
    }
}
