//! The environment variables that tell tests where the services are.

use std::fmt;

/// Names and values, in order; displayed as `KEY=VALUE` lines, the format of `target/services/env`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Variables(Vec<(&'static str, String)>);

impl Variables {
    /// Adds one variable. A line break would be read as the start of another, so it ends the value.
    pub(crate) fn set(&mut self, name: &'static str, value: impl Into<String>) {
        let value: String = value.into();
        self.0.push((name, value.lines().next().unwrap_or_default().to_owned()));
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }
}

impl fmt::Display for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|(name, value)| writeln!(f, "{name}={value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_variable_in_order() {
        let mut variables = Variables::default();
        variables.set("B", "redis://u:p%40s@127.0.0.1:1/0");
        let mut more = Variables::default();
        more.set("A", "x=y");
        variables.extend(more);
        assert_eq!(variables.to_string(), "B=redis://u:p%40s@127.0.0.1:1/0\nA=x=y\n");
    }

    #[test]
    fn a_value_cannot_start_a_second_variable() {
        let mut variables = Variables::default();
        variables.set("A", "one\nB=two");
        assert_eq!(variables.to_string(), "A=one\n");
    }
}
