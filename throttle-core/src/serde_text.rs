//! `serde` for configuration files: what has a text form is that text; a policy is its name and its rules.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::{Algorithm, Policy, PolicyName, Quota, Rule, SetupError};

macro_rules! as_text {
    ($($Type:ident: $expecting:literal;)+) => {$(
        impl Serialize for $Type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $Type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;

                impl Visitor<'_> for Text {
                    type Value = $Type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$Type, E> {
                        text.parse().map_err(E::custom)
                    }
                }

                deserializer.deserialize_str(Text)
            }
        }
    )+};
}

as_text! {
    Algorithm: "the name of an algorithm, such as gcra";
    PolicyName: "the name of a policy";
    Quota: "a quota, such as 10/s burst 20";
    Rule: "a rule, such as gcra 10/s burst 20";
}

/// `{ "name": "api", "rules": ["gcra 10/s burst 20", "fixed_window 1000/h"] }`.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename = "Policy", deny_unknown_fields)]
struct Fields {
    name: PolicyName,
    rules: Vec<Rule>,
}

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Fields { name: self.name().clone(), rules: self.rules().to_vec() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = Fields::deserialize(deserializer)?;
        Self::new(fields.name.as_str(), fields.rules).map_err(|error: SetupError| de::Error::custom(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_read_from_configuration_and_written_back() {
        let text = r#"{"name":"api","rules":["gcra 10/s burst 20","leaky_bucket 5/s queue 2s"]}"#;
        let policy: Policy = serde_json::from_str(text).unwrap();
        assert_eq!(format!("{policy:?}"), "api: [gcra 10/s burst 20] [leaky_bucket 5/s queue 2s]");
        assert_eq!(serde_json::to_string(&policy).unwrap(), text);
    }

    #[test]
    fn what_is_invalid_says_so() {
        let reason = |text: &str| serde_json::from_str::<Policy>(text).unwrap_err().to_string();
        assert!(reason(r#"{"name":"api","rules":[]}"#).starts_with("a policy needs at least one rule"));
        assert!(reason(r#"{"name":"a b","rules":["gcra 1/s"]}"#).starts_with("policy name \"a b\""));
        assert!(reason(r#"{"name":"a","rules":["gcra 0/s"]}"#).starts_with("a limit of 0 admits nobody"));
        assert!(reason(r#"{"name":"a","rules":[7]}"#).contains("expected a rule, such as"));
    }
}
