//! Rules on Markdown: relative links lead somewhere, and the code map is a map of this code.

use super::{Finding, Source, manifests};

const MAP: &str = "docs/ARCHITECTURE.md";
const MAP_HEADING: &str = "## Code map";

pub(super) fn check(sources: &[Source], exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let documents = sources.iter().filter(|source| source.path.ends_with(".md"));
    let mut findings: Vec<_> = documents.flat_map(|document| dead_links(document, exists)).collect();
    let map = sources.iter().find(|source| source.path == MAP);
    match map.filter(|map| map.lines().any(|(_, line)| line == MAP_HEADING)) {
        Some(map) => findings.extend(map_faults(map, &manifests::packages(sources), exists)),
        None => {
            let message = format!("the architecture document has a section `{MAP_HEADING}`");
            findings.push(Finding { path: MAP.to_owned(), line: 0, message });
        }
    }
    findings
}

fn dead_links(document: &Source, exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let folder = document.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let dead = |target: &&str| !resolve(folder, target).is_some_and(|path| path.is_empty() || exists(&path));
    let mut findings = Vec::new();
    for (number, line) in outside_code(document) {
        for target in targets(line).filter(is_relative).filter(dead) {
            findings.push(document.finding(number, format!("the link to `{target}` leads nowhere")));
        }
    }
    findings
}

/// The lines that are not in a fenced block.
fn outside_code(document: &Source) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    document.lines().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The targets of `[text](target)` and of `[label]: target`, without their fragments.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let defined = line.starts_with('[').then(|| line.split_once("]: ")).flatten().map(|(_, target)| target);
    inline.chain(defined).map(|target| target.split('#').next().unwrap_or_default().trim())
}

/// Neither an address nor a place in the same file nor a Rust path, which rustdoc checks.
fn is_relative(target: &&str) -> bool {
    let is_file = target.contains(['/', '.']) || target.starts_with(|c: char| c.is_ascii_uppercase());
    is_file && !target.contains("://") && !target.contains("::") && !target.starts_with("mailto:")
}

/// The path from the root, or nothing when it leaves the project.
fn resolve(folder: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn map_faults(map: &Source, packages: &[(&str, &str)], exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let spans = spans_of_map(map);
    let stale = spans.iter().filter(|(_, span)| span.contains('/') && !exists(span));
    let mut findings: Vec<_> =
        stale.map(|(number, span)| map.finding(*number, format!("`{span}` does not exist"))).collect();
    let named =
        |package: &str, folder: &str| spans.iter().any(|(_, span)| *span == package || *span == folder);
    let unnamed = packages.iter().filter(|(package, folder)| !named(package, folder));
    findings.extend(
        unnamed.map(|(package, _)| map.finding(0, format!("the code map does not name `{package}`"))),
    );
    findings
}

/// The code spans of the map that can be paths, with their lines.
fn spans_of_map(map: &Source) -> Vec<(usize, &str)> {
    let section = outside_code(map).skip_while(|(_, line)| *line != MAP_HEADING).skip(1);
    let section = section.take_while(|(_, line)| !line.starts_with("## "));
    let spans =
        section.flat_map(|(number, line)| line.split('`').skip(1).step_by(2).map(move |span| (number, span)));
    spans.filter(|(_, span)| !span.contains([' ', '*', '<', ':'])).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{brief, source};
    use super::*;

    const FILES: &[&str] = &["README.md", "docs/guide.md", "a/", "a/src/lib.rs"];

    fn exists(path: &str) -> bool {
        FILES.contains(&path)
    }

    fn links(path: &str, text: &str) -> Vec<String> {
        brief(dead_links(&source(path, text), &exists))
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        assert_eq!(links("README.md", "[a](docs/guide.md#top) [b](https://x.org/y) [c](#here)"), [""; 0]);
        assert_eq!(links("docs/guide.md", "[up](../README.md \"title\")\n[r]: ../README.md\n"), [""; 0]);
        assert_eq!(links("README.md", "[type](crate::Quota)\n```\n[x](gone.md)\n```\n"), [""; 0]);
    }

    #[test]
    fn dead_links_are_found() {
        assert_eq!(
            links("README.md", "\n[a](docs/gone.md)"),
            ["2: the link to `docs/gone.md` leads nowhere"]
        );
        assert_eq!(links("README.md", "[l]: LICENSE"), ["1: the link to `LICENSE` leads nowhere"]);
        assert_eq!(links("README.md", "[a](../x.md)"), ["1: the link to `../x.md` leads nowhere"]);
    }

    #[test]
    fn the_code_map_names_every_crate_and_only_what_exists() {
        let packages = [("a", "a/"), ("b", "b/")];
        let good = "## Code map\n\n`a/` and `a/src/lib.rs`, then `b` with `x::y` and `scripts/*.lua`.\n\n## More\n`c/`\n";
        assert_eq!(brief(map_faults(&source(MAP, good), &packages, &exists)), [""; 0]);
        let bad = "## Code map\n`a/src/gone.rs`\n";
        let expected = [
            "2: `a/src/gone.rs` does not exist",
            "0: the code map does not name `a`",
            "0: the code map does not name `b`",
        ];
        assert_eq!(brief(map_faults(&source(MAP, bad), &packages, &exists)), expected);
    }

    #[test]
    fn a_project_without_a_code_map_is_told() {
        let expected = ["0: the architecture document has a section `## Code map`"];
        assert_eq!(brief(check(&[], &exists)), expected);
        assert_eq!(brief(check(&[source(MAP, "# Architecture\n")], &exists)), expected);
    }
}
