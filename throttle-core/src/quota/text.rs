//! Quotas as text: `10/s`, `100 per minute burst 20`, `7 per 13s burst 5`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{Quota, QuotaBuilder};
use crate::SetupError;

/// Units from long to short, with every spelling that is read; the first is the one written.
const UNITS: [(u64, &[&str]); 7] = [
    (604_800_000_000, &["w", "wk", "wks", "week", "weeks"]),
    (86_400_000_000, &["d", "day", "days"]),
    (3_600_000_000, &["h", "hr", "hrs", "hour", "hours"]),
    (60_000_000, &["m", "min", "mins", "minute", "minutes"]),
    (1_000_000, &["s", "sec", "secs", "second", "seconds"]),
    (1_000, &["ms", "msec", "msecs", "millisecond", "milliseconds"]),
    (1, &["us", "µs", "μs", "usec", "usecs", "microsecond", "microseconds"]),
];

impl Quota {
    /// Reads several quotas, separated by `,` `;` or `|`.
    ///
    /// ```
    /// use throttle_core::Quota;
    ///
    /// let quotas = Quota::parse_list("10/s burst 20; 1000 per hour")?;
    /// assert_eq!(quotas, ["10/s burst 20".parse()?, "1000/h".parse()?]);
    /// # Ok::<(), throttle_core::SetupError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Quota::from_str`] for the first part that is no quota; an empty part is none.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, SetupError> {
        text.split([',', ';', '|']).map(str::parse).collect()
    }
}

/// Reads `<limit>/<period>` or `<limit> per <period>`, with an optional `burst <n>` at the end. A period is a unit
/// (`us`, `ms`, `s`, `m`, `h`, `d`, `w`, or in words) with an optional count before it. Case does not matter.
impl FromStr for Quota {
    type Err = SetupError;

    fn from_str(text: &str) -> Result<Self, SetupError> {
        let fail = |reason: String| SetupError::Parse { text: text.to_owned(), reason };
        read(text).map_err(fail)?.build()
    }
}

impl TryFrom<&str> for Quota {
    type Error = SetupError;

    fn try_from(text: &str) -> Result<Self, SetupError> {
        text.parse()
    }
}

/// Writes what [`FromStr`] reads back as the same quota.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match unit_of(self.period_micros) {
            (unit, name) if unit == self.period_micros => write!(f, "{}/{name}", self.limit)?,
            _ => write!(f, "{} per {}", self.limit, Period(self.period_micros))?,
        }
        match self.burst {
            Some(burst) => write!(f, " burst {burst}"),
            None => Ok(()),
        }
    }
}

/// A span as quotas write it: a count and the longest unit that divides it, as in `13s`.
pub(crate) struct Period(pub(crate) u64);

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = unit_of(self.0);
        write!(f, "{}{name}", self.0 / unit)
    }
}

fn unit_of(micros: u64) -> (u64, &'static str) {
    let fits = |&&(unit, _): &&(u64, &[&'static str])| micros >= unit && micros.is_multiple_of(unit);
    UNITS.iter().find(fits).map_or((1, "us"), |(unit, names)| (*unit, names.first().copied().unwrap_or("us")))
}

fn read(text: &str) -> Result<QuotaBuilder, String> {
    let mut words = Words::of(text);
    let limit = words.number("a limit")?;
    match words.next() {
        Some(word) if word == "/" || word.eq_ignore_ascii_case("per") => {}
        other => return Err(format!("expected '/' or 'per' after the limit, found {}", shown(other))),
    }
    let quota = Quota::per(limit, words.period()?);
    match words.next() {
        None => Ok(quota),
        Some(word) if word.eq_ignore_ascii_case("burst") => {
            let burst = words.number("a burst")?;
            words.end()?;
            Ok(quota.burst(burst))
        }
        other => Err(format!("expected 'burst' or the end, found {}", shown(other))),
    }
}

/// Reads a span such as `13s`, `250 ms` or `minute`.
pub(crate) fn read_period(text: &str) -> Result<Duration, String> {
    let mut words = Words::of(text);
    let period = words.period()?;
    words.end().map(|()| period)
}

/// The words of a text: runs of digits, runs of letters, and any other sign by itself.
struct Words<'t> {
    rest: &'t str,
}

impl<'t> Words<'t> {
    fn of(text: &'t str) -> Self {
        Self { rest: text }
    }

    fn number(&mut self, what: &str) -> Result<u32, String> {
        let word = self.next();
        match word.map(str::parse) {
            Some(Ok(number)) => Ok(number),
            _ => Err(format!("expected {what} from 1 to {}, found {}", u32::MAX, shown(word))),
        }
    }

    fn period(&mut self) -> Result<Duration, String> {
        let mut word = self.next();
        let mut count = 1_u64;
        if let Some(digits) = word.filter(|word| word.starts_with(|c: char| c.is_ascii_digit())) {
            count = digits.parse().map_err(|_| format!("a period of {digits} units is too long"))?;
            word = self.next();
        }
        let named = |&&(_, names): &&(u64, &[&str])| {
            word.is_some_and(|word| names.iter().any(|name| name.eq_ignore_ascii_case(word)))
        };
        let (unit, _) = UNITS
            .iter()
            .find(named)
            .ok_or_else(|| format!("expected us, ms, s, m, h, d or w, found {}", shown(word)))?;
        let micros =
            count.checked_mul(*unit).ok_or_else(|| format!("a period of {count} units is too long"))?;
        Ok(Duration::from_micros(micros))
    }

    fn end(&mut self) -> Result<(), String> {
        self.next().map_or(Ok(()), |word| Err(format!("expected the end, found {}", shown(Some(word)))))
    }
}

impl<'t> Iterator for Words<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        let text = self.rest.trim_start();
        let first = text.chars().next()?;
        let kind = |c: char| (c.is_ascii_digit(), c.is_alphabetic());
        let end = match kind(first) {
            (false, false) => first.len_utf8(),
            run => text.find(|c| kind(c) != run).unwrap_or(text.len()),
        };
        let (word, rest) = text.split_at(end);
        self.rest = rest;
        Some(word)
    }
}

fn shown(word: Option<&str>) -> String {
    word.map_or_else(|| "nothing".to_owned(), |word| format!("{word:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(text: &str) -> Quota {
        text.parse().unwrap()
    }

    #[test]
    fn every_form_of_the_same_quota() {
        let expected = Quota::per_minute(100).burst(20).build().unwrap();
        for text in [
            "100/m burst 20",
            "100 per minute burst 20",
            "100/min BURST 20",
            "  100  /  1 mins  burst  20 ",
            "100PER60SECONDS BURST20",
            "100 per 60000ms burst 20",
            "100 per 60000000 µs burst 20",
        ] {
            assert_eq!(quota(text), expected, "{text}");
        }
    }

    #[test]
    fn every_unit() {
        for (micros, names) in UNITS {
            for name in names {
                assert_eq!(quota(&format!("5/{name}")).period_micros(), micros, "{name}");
                assert_eq!(quota(&format!("5 per 3{name}")).period_micros(), 3 * micros, "{name}");
            }
        }
    }

    #[test]
    fn what_is_no_quota_says_why() {
        for (text, reason) in [
            ("", "expected a limit from 1 to 4294967295, found nothing"),
            ("ten/s", "expected a limit from 1 to 4294967295, found \"ten\""),
            ("-1/s", "expected a limit from 1 to 4294967295, found \"-\""),
            ("4294967296/s", "expected a limit from 1 to 4294967295, found \"4294967296\""),
            ("10", "expected '/' or 'per' after the limit, found nothing"),
            ("10.5/s", "expected '/' or 'per' after the limit, found \".\""),
            ("10/", "expected us, ms, s, m, h, d or w, found nothing"),
            ("10/month", "expected us, ms, s, m, h, d or w, found \"month\""),
            ("10 per 99999999999999999999 s", "a period of 99999999999999999999 units is too long"),
            ("10 per 9999999999999999999 w", "a period of 9999999999999999999 units is too long"),
            ("10/s burst", "expected a burst from 1 to 4294967295, found nothing"),
            ("10/s burst 5 burst 6", "expected the end, found \"burst\""),
            ("10/s bursts 5", "expected 'burst' or the end, found \"bursts\""),
        ] {
            let expected = SetupError::Parse { text: text.to_owned(), reason: reason.to_owned() };
            assert_eq!(text.parse::<Quota>(), Err(expected), "{text}");
        }
        assert_eq!("0/s".parse::<Quota>(), Err(SetupError::ZeroLimit));
        assert_eq!("1/s burst 0".parse::<Quota>(), Err(SetupError::ZeroBurst));
        assert_eq!("1 per 0s".parse::<Quota>(), Err(SetupError::ZeroPeriod));
    }

    #[test]
    fn lists_are_separated_three_ways_and_have_no_empty_part() {
        let expected = [quota("10/s"), quota("100/m burst 20"), quota("7 per 13s")];
        assert_eq!(Quota::parse_list("10/s, 100/m burst 20; 7 per 13s").unwrap(), expected);
        assert_eq!(Quota::parse_list("10/s|100/m burst 20|7 per 13s").unwrap(), expected);
        for text in ["", "10/s,", ",10/s", "10/s,,5/m"] {
            assert!(matches!(Quota::parse_list(text), Err(SetupError::Parse { .. })), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn display_is_read_back(limit in 1..=u32::MAX, period in 1..=(1_u64 << 50), count in 1..1_000_u64,
                                unit in 0..UNITS.len(), burst: Option<u32>) {
            for micros in [period, (UNITS[unit].0 * count).min(1 << 50)] {
                let builder = QuotaBuilder { limit, period: Duration::from_micros(micros), burst: burst.map(|b| b.max(1)) };
                let quota = builder.build().unwrap();
                proptest::prop_assert_eq!(quota.to_string().parse(), Ok(quota));
            }
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<Quota>();
            let _ = Quota::parse_list(&text);
        }
    }
}
