//! The `Retry-After` header (RFC 9110, section 10.2.3).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::Timestamp;
use crate::time::floor_micros;

/// The wait that the value of a `Retry-After` header asks for, counted from `now`.
///
/// The value is read strictly: either digits and nothing else, a number of seconds, or an HTTP date in one of the three
/// formats of RFC 9110. A date that is past is no wait. A number too large to count is the longest wait, not a mistake:
/// a [`Retry`](super::Retry) caps what it is told. Anything else is None: signs, fractions, units, white space.
///
/// ```
/// use std::time::Duration;
/// use throttle_core::{Timestamp, retry::parse_retry_after};
///
/// let now = Timestamp::from_micros(1_445_412_420_000_000)?; // 2015-10-21 07:27:00
/// assert_eq!(parse_retry_after("120", now), Some(Duration::from_secs(120)));
/// assert_eq!(parse_retry_after("Wed, 21 Oct 2015 07:28:00 GMT", now), Some(Duration::from_secs(60)));
/// assert_eq!(parse_retry_after("Wed, 21 Oct 2015 07:26:00 GMT", now), Some(Duration::ZERO));
/// assert_eq!(parse_retry_after("-5", now), None);
/// # Ok::<(), throttle_core::DataError>(())
/// ```
#[must_use]
pub fn parse_retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    seconds(value).or_else(|| Some(date(value)?.saturating_since(now)))
}

fn seconds(value: &str) -> Option<Duration> {
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    // Digits fail to parse only when they are too many.
    digits.then(|| Duration::from_secs(value.parse().unwrap_or(u64::MAX)))
}

fn date(value: &str) -> Option<Timestamp> {
    // The parser trims.
    if value.trim() != value {
        return None;
    }
    let date: SystemTime = httpdate::parse_http_date(value).ok()?;
    Some(Timestamp::saturating_from_micros(floor_micros(date.duration_since(UNIX_EPOCH).ok()?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(clock: &str) -> Timestamp {
        date(&format!("Wed, 21 Oct 2015 {clock} GMT")).unwrap()
    }

    #[test]
    fn o_99_dates_are_read_and_nothing_is_negative() {
        let now = at("07:27:00");
        let read = |value| parse_retry_after(value, now);
        assert_eq!(now.as_micros(), 1_445_412_420_000_000);
        assert_eq!(read("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::from_secs(60)));
        assert_eq!(read("Wednesday, 21-Oct-15 07:28:00 GMT"), Some(Duration::from_secs(60)));
        assert_eq!(read("Wed Oct 21 07:28:00 2015"), Some(Duration::from_secs(60)));
        assert_eq!(read("Wed, 21 Oct 2015 07:26:59 GMT"), Some(Duration::ZERO));
        assert_eq!(read("Thu, 01 Jan 1970 00:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(read("-5"), None);
    }

    #[test]
    fn seconds_are_digits_and_nothing_else() {
        let read = |value| parse_retry_after(value, at("07:27:00"));
        assert_eq!(read("0"), Some(Duration::ZERO));
        assert_eq!(read("007"), Some(Duration::from_secs(7)));
        for malformed in
            ["", " ", "+5", "5.0", "5,0", "5s", " 5", "5 ", "5\n", "0x5", "1e3", "٥", "five", "5, 6"]
        {
            assert_eq!(read(malformed), None, "{malformed:?}");
        }
    }

    #[test]
    fn a_huge_wait_is_not_malformed() {
        let read = |value: &str| parse_retry_after(value, at("07:27:00"));
        assert_eq!(read("18446744073709551615"), Some(Duration::from_secs(u64::MAX)));
        assert_eq!(read("18446744073709551616"), Some(Duration::from_secs(u64::MAX)));
        assert_eq!(read(&"9".repeat(1_000)), Some(Duration::from_secs(u64::MAX)));
        let last = Timestamp::MAX.saturating_since(at("07:27:00"));
        assert_eq!(read("Fri, 31 Dec 9999 23:59:59 GMT"), Some(last));
    }

    #[test]
    fn dates_that_do_not_exist_are_malformed() {
        let read = |value| parse_retry_after(value, at("07:27:00"));
        for malformed in [
            "Thu, 21 Oct 2015 07:28:00 GMT",
            "Mon, 30 Feb 2015 07:28:00 GMT",
            "Wed, 21 Oct 2015 24:00:00 GMT",
            "Wed, 21 Oct 2015 07:28:00 UTC",
            "Wed, 21 Oct 2015 07:28:00 +0000",
            "Wed, 21 Oct 2015 07:28 GMT",
            " Wed, 21 Oct 2015 07:28:00 GMT",
            "2015-10-21T07:28:00Z",
            "Wed, 31 Dec 1969 23:59:59 GMT",
        ] {
            assert_eq!(read(malformed), None, "{malformed:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(value in "\\PC{0,40}|[A-Z][a-z]{2,8}, [0-9A-Za-z :-]{10,24}GMT") {
            let _ = parse_retry_after(&value, Timestamp::EPOCH);
        }
    }
}
