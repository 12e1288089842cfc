//! Reads the Common Log Format: `host ident user [day/Mon/year:hour:minute:second zone] …`.

use jiff::fmt::strtime;
use throttle::Timestamp;

/// The requests of a log, and the lines that are none.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Time and client address of each request.
    pub(crate) requests: Vec<(Timestamp, String)>,
    /// Numbers of the lines that could not be read, from 1.
    pub(crate) malformed: Vec<usize>,
}

impl Log {
    /// Reads every line; what is not text in UTF-8 is replaced, as it is of no concern here.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let mut log = Self::default();
        for (index, line) in String::from_utf8_lossy(bytes).lines().enumerate() {
            match request(line) {
                Some(request) => log.requests.push(request),
                None => log.malformed.push(index + 1),
            }
        }
        log
    }

    /// By time; requests of the same time stay as they stand.
    pub(crate) fn sort(&mut self) {
        self.requests.sort_by_key(|(time, _)| *time);
    }
}

fn request(line: &str) -> Option<(Timestamp, String)> {
    let (head, rest) = line.split_once(" [")?;
    let (time, _) = rest.split_once(']')?;
    let [host, _ident, _user] = head.split(' ').collect::<Vec<_>>().try_into().ok()?;
    let time = strtime::parse("%d/%b/%Y:%H:%M:%S %z", time).ok()?.to_timestamp().ok()?;
    let time = Timestamp::from_micros(u64::try_from(time.as_microsecond()).ok()?).ok()?;
    (!host.is_empty()).then(|| (time, host.to_owned()))
}
