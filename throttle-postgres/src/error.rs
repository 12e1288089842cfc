//! Every way in which PostgreSQL fails, and the one function that tells them apart.

use std::sync::Arc;

use throttle_core::{BaseErrorSet, DataError, Effect, ErrorKind};

/// Every way in which PostgreSQL can fail. Replies are told apart by their SQLSTATE, never by their message.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresError {
    /// No connection could be made.
    #[error("no connection to PostgreSQL")]
    Connect(#[source] Cause),
    /// The connection was lost before the answer came.
    #[error("the connection to PostgreSQL was lost")]
    Lost(#[source] Cause),
    /// All connections of the pool are in use, and none came back within the acquire deadline; nothing was sent.
    #[error("no free connection to PostgreSQL within the deadline")]
    PoolTimedOut,
    /// It was sent, and not answered within the response deadline.
    #[error("no answer from PostgreSQL within the deadline")]
    NoAnswerInTime,
    /// `lock_not_available`, `query_canceled`: somebody else has held a row of ours until the response deadline, or has
    /// canceled the statement. It was rolled back.
    #[error("PostgreSQL has canceled the statement")]
    Canceled(#[source] Cause),
    /// `serialization_failure`, `deadlock_detected`, several times in a row. It was rolled back.
    #[error("the statement got in the way of others, several times")]
    Conflict(#[source] Cause),
    /// `too_many_connections`, `out_of_memory`, `configuration_limit_exceeded`.
    #[error("PostgreSQL has no resources left for this")]
    Overloaded(#[source] Cause),
    /// `admin_shutdown`, `cannot_connect_now` and the like: the server stops, starts or recovers, and has not done it.
    #[error("PostgreSQL is stopping or starting")]
    ShuttingDown(#[source] Cause),
    /// `crash_shutdown`: the server stops because one of its processes has crashed.
    #[error("PostgreSQL has crashed")]
    Crashed(#[source] Cause),
    /// `read_only_sql_transaction`: this server is a standby, or was told to write nothing.
    #[error("this PostgreSQL server only reads")]
    ReadOnly(#[source] Cause),
    /// `disk_full`.
    #[error("PostgreSQL has no disk space left")]
    DiskFull(#[source] Cause),
    /// User or password are not right, or the user may not do this.
    #[error("PostgreSQL does not allow this user")]
    Unauthorized(#[source] Cause),
    /// `undefined_table`, `undefined_function`, `invalid_catalog_name` and the like: what was there when connecting is gone.
    #[error("the database, or the schema of throttle in it, is missing in PostgreSQL")]
    SchemaMissing(#[source] Cause),
    /// The row of a key of ours holds something that is not a state. It is left alone.
    #[error("the row holds a value that is not a state")]
    Corrupt(#[source] DataError),
    /// Any other error reply.
    #[error("PostgreSQL replied with an error")]
    Replied(#[source] Cause),
    /// The answer is not what the function gives, or the driver has failed.
    #[error("PostgreSQL gave an answer that is not understood")]
    Answer(#[source] Cause),
}

/// What the driver said, kept as the source of an error.
#[derive(Debug, Clone, thiserror::Error)]
#[error(transparent)]
pub struct Cause(Arc<sqlx::Error>);

impl Cause {
    /// The SQLSTATE of an error reply, such as `53300`.
    #[must_use]
    pub fn code(&self) -> Option<String> {
        self.0.as_database_error()?.code().map(std::borrow::Cow::into_owned)
    }
}

/// What the driver says of a statement that it took.
pub(crate) fn classify(error: sqlx::Error) -> PostgresError {
    let member = match &error {
        sqlx::Error::PoolTimedOut => return PostgresError::PoolTimedOut,
        sqlx::Error::Database(reply) => of_code(reply.code().as_deref().unwrap_or_default()),
        sqlx::Error::PoolClosed => PostgresError::Connect,
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) => PostgresError::Lost,
        _ => PostgresError::Answer,
    };
    member(Cause(Arc::new(error)))
}

/// What the driver says of a connection it could not make: nothing was asked yet.
pub(crate) fn classify_connect(error: sqlx::Error) -> PostgresError {
    match classify(error) {
        PostgresError::Lost(cause) | PostgresError::Answer(cause) | PostgresError::Replied(cause) => {
            PostgresError::Connect(cause)
        }
        other => other,
    }
}

/// By the names in the appendix on error codes of PostgreSQL's manual.
fn of_code(code: &str) -> fn(Cause) -> PostgresError {
    match code {
        // serialization_failure, deadlock_detected
        "40001" | "40P01" => PostgresError::Conflict,
        // lock_not_available, query_canceled
        "55P03" | "57014" => PostgresError::Canceled,
        // disk_full
        "53100" => PostgresError::DiskFull,
        // insufficient_resources, out_of_memory, too_many_connections, configuration_limit_exceeded
        "53000" | "53200" | "53300" | "53400" => PostgresError::Overloaded,
        // admin_shutdown, cannot_connect_now, idle_session_timeout
        "57P01" | "57P03" | "57P05" => PostgresError::ShuttingDown,
        // crash_shutdown
        "57P02" => PostgresError::Crashed,
        // read_only_sql_transaction
        "25006" => PostgresError::ReadOnly,
        // insufficient_privilege
        "42501" => PostgresError::Unauthorized,
        // undefined_table, undefined_function, undefined_column, invalid_schema_name, invalid_catalog_name, database_dropped
        "42P01" | "42883" | "42703" | "3F000" | "3D000" | "57P04" => PostgresError::SchemaMissing,
        // invalid_authorization_specification
        _ if code.starts_with("28") => PostgresError::Unauthorized,
        // connection_exception; poolers say so of their servers
        _ if code.starts_with("08") => PostgresError::Lost,
        _ => PostgresError::Replied,
    }
}

impl PostgresError {
    /// An answer that does not have the form of ours.
    pub(crate) fn answer(what: &'static str) -> Self {
        Self::Answer(Cause(Arc::new(sqlx::Error::Protocol(what.to_owned()))))
    }

    /// Whether the same statement may well succeed at once: it was rolled back because of others.
    pub(crate) const fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict(_))
    }
}

impl BaseErrorSet for PostgresError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Connect(_) | Self::Lost(_) => ErrorKind::Connection,
            Self::PoolTimedOut => ErrorKind::PoolExhausted,
            Self::NoAnswerInTime | Self::Canceled(_) => ErrorKind::Timeout,
            Self::Conflict(_) | Self::Overloaded(_) => ErrorKind::Overloaded,
            Self::ShuttingDown(_) | Self::Crashed(_) => ErrorKind::NotReady,
            Self::ReadOnly(_) => ErrorKind::ReadOnly,
            Self::DiskFull(_) => ErrorKind::StorageFull,
            Self::Unauthorized(_) => ErrorKind::Unauthorized,
            Self::SchemaMissing(_) => ErrorKind::Misconfigured,
            Self::Corrupt(_) => ErrorKind::Corrupt,
            Self::Replied(_) | Self::Answer(_) => ErrorKind::Bug,
        }
    }

    /// A statement that ends in an error reply was rolled back.
    fn effect(&self) -> Effect {
        match self {
            Self::Lost(_) | Self::NoAnswerInTime | Self::Crashed(_) | Self::Replied(_) | Self::Answer(_) => {
                Effect::Unknown
            }
            _ => Effect::NotApplied,
        }
    }

    fn samples() -> Vec<Self> {
        let io = |kind: std::io::ErrorKind| sqlx::Error::from(std::io::Error::from(kind));
        let reply = |code| of_code(code)(Cause(Arc::new(sqlx::Error::Protocol(format!("SQLSTATE {code}")))));
        let mut samples: Vec<_> =
            ["40001", "55P03", "53300", "57P01", "57P02", "25006", "53100", "28P01", "42883", "22012"]
                .map(reply)
                .into();
        samples.push(classify_connect(io(std::io::ErrorKind::ConnectionRefused)));
        samples.push(classify(io(std::io::ErrorKind::BrokenPipe)));
        samples.push(Self::PoolTimedOut);
        samples.push(Self::NoAnswerInTime);
        samples.push(Self::Corrupt(DataError::Corrupt { reason: "the row holds no state" }));
        samples.push(Self::answer("a row has no time"));
        samples
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::io;

    use super::*;

    #[test]
    fn replies_are_told_apart_by_code() {
        use Effect::{NotApplied, Unknown};
        use ErrorKind::{
            Bug, Connection, Misconfigured, NotReady, Overloaded, ReadOnly, StorageFull, Timeout,
            Unauthorized,
        };
        for (code, kind, effect) in [
            ("40001", Overloaded, NotApplied),
            ("40P01", Overloaded, NotApplied),
            ("55P03", Timeout, NotApplied),
            ("57014", Timeout, NotApplied),
            ("53100", StorageFull, NotApplied),
            ("53200", Overloaded, NotApplied),
            ("53300", Overloaded, NotApplied),
            ("57P01", NotReady, NotApplied),
            ("57P02", NotReady, Unknown),
            ("57P03", NotReady, NotApplied),
            ("25006", ReadOnly, NotApplied),
            ("28000", Unauthorized, NotApplied),
            ("28P01", Unauthorized, NotApplied),
            ("42501", Unauthorized, NotApplied),
            ("42P01", Misconfigured, NotApplied),
            ("42883", Misconfigured, NotApplied),
            ("3D000", Misconfigured, NotApplied),
            ("08P01", Connection, Unknown),
            ("42P05", Bug, Unknown),
            ("XX000", Bug, Unknown),
            ("", Bug, Unknown),
        ] {
            let error = of_code(code)(Cause(Arc::new(sqlx::Error::RowNotFound)));
            assert_eq!((error.kind(), error.effect()), (kind, effect), "{code}");
        }
    }

    #[test]
    fn what_was_sent_may_have_been_done_and_what_was_not_was_not() {
        let io = |kind| sqlx::Error::from(io::Error::from(kind));
        for kind in [io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof, io::ErrorKind::TimedOut] {
            let lost = classify(io(kind));
            assert_eq!((lost.kind(), lost.effect()), (ErrorKind::Connection, Effect::Unknown));
            let refused = classify_connect(io(kind));
            assert_eq!((refused.kind(), refused.effect()), (ErrorKind::Connection, Effect::NotApplied));
        }
        let exhausted = classify(sqlx::Error::PoolTimedOut);
        assert_eq!((exhausted.kind(), exhausted.effect()), (ErrorKind::PoolExhausted, Effect::NotApplied));
    }

    #[test]
    fn the_cause_is_the_source_and_not_said_twice() {
        let error = classify(sqlx::Error::from(io::Error::other("anything at all")));
        assert_eq!(error.to_string(), "the connection to PostgreSQL was lost");
        assert!(error.source().unwrap().to_string().contains("anything at all"));
    }

    #[test]
    fn there_is_a_sample_of_each_member() {
        let names: std::collections::HashSet<_> = PostgresError::samples()
            .iter()
            .map(|sample| format!("{sample:?}").split(['(', ' ']).next().unwrap().to_owned())
            .collect();
        assert_eq!(names.len(), 16, "{names:?}");
    }
}
