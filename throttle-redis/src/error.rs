//! Every way in which Redis fails, and the one function that tells them apart.

use redis::{ErrorKind as DriverKind, RedisError as DriverError};
use throttle_core::{BaseErrorSet, DataError, Effect, ErrorKind};

/// Every way in which Redis can fail. Replies are told apart by their code, never by their message.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RedisError {
    /// No connection could be made.
    #[error("no connection to Redis")]
    Connect(#[source] Cause),
    /// The connection was lost before the answer came.
    #[error("the connection to Redis was lost")]
    Lost(#[source] Cause),
    /// There was no connection within the response deadline; nothing was sent.
    #[error("no connection to Redis within the deadline")]
    NoConnectionInTime,
    /// It was sent, and not answered within the response deadline.
    #[error("no answer from Redis within the deadline")]
    NoAnswerInTime,
    /// `LOADING`: the server has started and still reads its data.
    #[error("Redis is loading its data")]
    Loading(#[source] Cause),
    /// `BUSY`: a script of somebody else has been running for too long.
    #[error("Redis is busy with a script")]
    Busy(#[source] Cause),
    /// `OOM`: `maxmemory` is reached, and nothing may be evicted.
    #[error("Redis has no memory left")]
    OutOfMemory(#[source] Cause),
    /// `MISCONF`: the server refuses to write because it cannot save to disk.
    #[error("Redis cannot save to disk, and refuses to write")]
    CannotSave(#[source] Cause),
    /// `READONLY`: a replica, or a primary that was demoted. The connection is dropped, and the next call makes another.
    #[error("this Redis node is a replica")]
    ReadOnly(#[source] Cause),
    /// `MASTERDOWN`, `CLUSTERDOWN`, `TRYAGAIN`, `MOVED`, `ASK`, `NOREPLICAS`, or no primary known to the sentinels: nobody
    /// serves this key just now.
    #[error("no Redis primary serves this key now")]
    NoPrimary(#[source] Cause),
    /// `NOAUTH`, `WRONGPASS`, `NOPERM`: user, password or permissions are not right.
    #[error("Redis does not allow this user")]
    Unauthorized(#[source] Cause),
    /// `WRONGTYPE`: under a key of ours is something that is not a string. It is left alone.
    #[error("the key holds another type of value")]
    WrongType(#[source] Cause),
    /// The value under a key of ours is not a state of this library. It is left alone.
    #[error("the key holds a value that is not a state")]
    Corrupt(#[source] DataError),
    /// Any other error reply, such as an error in a script.
    #[error("Redis replied with an error")]
    Replied(#[source] Cause),
    /// The answer is not what the script gives.
    #[error("Redis gave an answer that is not understood")]
    Answer(#[source] Cause),
}

/// What the driver said, kept as the source of an error.
#[derive(Debug, Clone, thiserror::Error)]
#[error(transparent)]
pub struct Cause(DriverError);

impl Cause {
    /// The code of an error reply, such as `READONLY`.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.0.code()
    }
}

/// What the driver says of a command that it took.
pub(crate) fn classify(error: DriverError) -> RedisError {
    let timed_out = error.is_timeout();
    let member = match error.kind() {
        DriverKind::Io if timed_out => return RedisError::NoAnswerInTime,
        DriverKind::Io => RedisError::Lost,
        DriverKind::AuthenticationFailed => RedisError::Unauthorized,
        DriverKind::ClusterConnectionNotFound => RedisError::Connect,
        DriverKind::MasterNameNotFoundBySentinel => RedisError::NoPrimary,
        DriverKind::Server(_) | DriverKind::Extension => of_code(error.code().unwrap_or_default()),
        _ => RedisError::Answer,
    };
    member(Cause(error))
}

/// What the driver says of a connection it could not make: nothing was asked yet.
pub(crate) fn classify_connect(error: DriverError) -> RedisError {
    match classify(error.clone()) {
        RedisError::Lost(_) | RedisError::NoAnswerInTime | RedisError::Answer(_) | RedisError::Replied(_) => {
            RedisError::Connect(Cause(error))
        }
        other => other,
    }
}

fn of_code(code: &str) -> fn(Cause) -> RedisError {
    match code {
        "LOADING" => RedisError::Loading,
        "BUSY" => RedisError::Busy,
        "OOM" => RedisError::OutOfMemory,
        "MISCONF" => RedisError::CannotSave,
        "READONLY" => RedisError::ReadOnly,
        "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "MOVED" | "ASK" | "NOREPLICAS" => RedisError::NoPrimary,
        "NOAUTH" | "WRONGPASS" | "NOPERM" => RedisError::Unauthorized,
        "WRONGTYPE" => RedisError::WrongType,
        _ => RedisError::Replied,
    }
}

impl RedisError {
    /// An answer that does not have the form of ours.
    pub(crate) fn answer(what: &'static str) -> Self {
        Self::Answer(Cause(DriverError::from((DriverKind::UnexpectedReturnType, what))))
    }
}

impl BaseErrorSet for RedisError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Connect(_) | Self::Lost(_) => ErrorKind::Connection,
            Self::NoConnectionInTime | Self::NoAnswerInTime => ErrorKind::Timeout,
            Self::Loading(_) | Self::NoPrimary(_) => ErrorKind::NotReady,
            Self::Busy(_) => ErrorKind::Overloaded,
            Self::OutOfMemory(_) | Self::CannotSave(_) => ErrorKind::StorageFull,
            Self::ReadOnly(_) => ErrorKind::ReadOnly,
            Self::Unauthorized(_) => ErrorKind::Unauthorized,
            Self::WrongType(_) | Self::Corrupt(_) => ErrorKind::Corrupt,
            Self::Replied(_) | Self::Answer(_) => ErrorKind::Bug,
        }
    }

    fn effect(&self) -> Effect {
        match self {
            Self::Lost(_) | Self::NoAnswerInTime | Self::Replied(_) | Self::Answer(_) => Effect::Unknown,
            _ => Effect::NotApplied,
        }
    }

    fn samples() -> Vec<Self> {
        let reply = |code: &str| classify(redis::make_extension_error(code.to_owned(), None));
        let io = |kind: std::io::ErrorKind| DriverError::from(std::io::Error::from(kind));
        let mut samples: Vec<_> = [
            "LOADING",
            "BUSY",
            "OOM",
            "MISCONF",
            "READONLY",
            "CLUSTERDOWN",
            "NOAUTH",
            "WRONGTYPE",
            "CROSSSLOT",
        ]
        .into_iter()
        .map(reply)
        .collect();
        samples.push(classify_connect(io(std::io::ErrorKind::ConnectionRefused)));
        samples.push(classify(io(std::io::ErrorKind::BrokenPipe)));
        samples.push(Self::NoConnectionInTime);
        samples.push(Self::NoAnswerInTime);
        samples.push(Self::Corrupt(DataError::Corrupt { reason: "the version is not 1" }));
        samples.push(Self::answer("a reply has no time"));
        samples
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::io;

    use super::*;

    fn reply(code: &str) -> RedisError {
        classify(redis::make_extension_error(code.to_owned(), Some("anything at all".to_owned())))
    }

    #[test]
    fn o_72_replies_are_told_apart_by_code() {
        use ErrorKind::{Bug, Corrupt, NotReady, Overloaded, ReadOnly, StorageFull, Unauthorized};
        for (code, kind, effect) in [
            ("LOADING", NotReady, Effect::NotApplied),
            ("BUSY", Overloaded, Effect::NotApplied),
            ("OOM", StorageFull, Effect::NotApplied),
            ("MISCONF", StorageFull, Effect::NotApplied),
            ("READONLY", ReadOnly, Effect::NotApplied),
            ("MASTERDOWN", NotReady, Effect::NotApplied),
            ("CLUSTERDOWN", NotReady, Effect::NotApplied),
            ("TRYAGAIN", NotReady, Effect::NotApplied),
            ("MOVED", NotReady, Effect::NotApplied),
            ("NOREPLICAS", NotReady, Effect::NotApplied),
            ("NOAUTH", Unauthorized, Effect::NotApplied),
            ("WRONGPASS", Unauthorized, Effect::NotApplied),
            ("NOPERM", Unauthorized, Effect::NotApplied),
            ("WRONGTYPE", Corrupt, Effect::NotApplied),
            ("CROSSSLOT", Bug, Effect::Unknown),
            ("NOSCRIPT", Bug, Effect::Unknown),
            ("ERR", Bug, Effect::Unknown),
            ("SOMETHINGNEW", Bug, Effect::Unknown),
        ] {
            let error = reply(code);
            assert_eq!((error.kind(), error.effect()), (kind, effect), "{code}");
        }
    }

    #[test]
    fn what_was_sent_may_have_been_done_and_what_was_not_was_not() {
        let io = |kind| DriverError::from(io::Error::from(kind));
        let lost = classify(io(io::ErrorKind::ConnectionReset));
        assert_eq!((lost.kind(), lost.effect()), (ErrorKind::Connection, Effect::Unknown));
        let late = classify(io(io::ErrorKind::TimedOut));
        assert_eq!((late.kind(), late.effect()), (ErrorKind::Timeout, Effect::Unknown));
        for kind in [io::ErrorKind::ConnectionRefused, io::ErrorKind::TimedOut, io::ErrorKind::InvalidData] {
            let refused = classify_connect(io(kind));
            assert_eq!((refused.kind(), refused.effect()), (ErrorKind::Connection, Effect::NotApplied));
        }
    }

    #[test]
    fn the_cause_is_the_source_and_not_said_twice() {
        let error = reply("READONLY");
        assert_eq!(error.to_string(), "this Redis node is a replica");
        assert!(error.source().unwrap().to_string().contains("anything at all"));
    }

    #[test]
    fn there_is_a_sample_of_each_member() {
        let names: std::collections::HashSet<_> = RedisError::samples()
            .iter()
            .map(|sample| format!("{sample:?}").split(['(', ' ']).next().unwrap().to_owned())
            .collect();
        assert_eq!(names.len(), 15, "{names:?}");
    }
}
