//! Every way in which etcd fails, and the one function that tells them apart.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use throttle_core::{BaseErrorSet, Effect, ErrorKind};
use tonic::{Code, ConnectError, Status};

/// Every way in which etcd can fail, contention and unreadable states aside: those are
/// [`CasError`](throttle_core::CasError)'s.
///
/// Answers are told apart by their gRPC code. Where one code has several causes, the cause is told by its name: etcd has
/// no numbers, its API defines fixed strings, and its own client compares them.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// No connection could be made; nothing was sent.
    #[error("no connection to etcd")]
    Connect(#[source] Cause),
    /// No connection could be made, or no login, within the connect deadline; nothing was sent.
    #[error("no connection to etcd within the deadline")]
    NoConnectionInTime,
    /// The connection was lost before the answer came.
    #[error("the connection to etcd was lost")]
    Lost(#[source] Cause),
    /// It was sent, and not answered within the response deadline.
    #[error("no answer from etcd within the deadline")]
    NoAnswerInTime,
    /// `DEADLINE_EXCEEDED`: the server gave up.
    #[error("etcd did not answer itself in time")]
    TimedOut(#[source] Cause),
    /// `UNAVAILABLE`, no leader: the member asked knows of none.
    #[error("etcd has no leader")]
    NoLeader(#[source] Cause),
    /// `UNAVAILABLE` otherwise: the member stops, or the leader changed or did not answer while this was under way.
    #[error("etcd is not available")]
    Unavailable(#[source] Cause),
    /// `RESOURCE_EXHAUSTED`, too many requests: the cluster is far behind.
    #[error("etcd has too many requests")]
    TooManyRequests(#[source] Cause),
    /// `RESOURCE_EXHAUSTED`, no space: the quota of the database is used up, until somebody compacts, defragments and
    /// disarms the alarm. etcd says so too of what it carried out while the quota was passed.
    #[error("the database of etcd is full")]
    NoSpace(#[source] Cause),
    /// `UNAUTHENTICATED`: the token is not valid, and was not after a new login either.
    #[error("etcd does not accept the token")]
    Unauthenticated(#[source] Cause),
    /// `INVALID_ARGUMENT`, authentication failed: user or password are not right.
    #[error("etcd does not accept user or password")]
    WrongLogin(#[source] Cause),
    /// `PERMISSION_DENIED`: the user may not read or write these keys, or nobody has logged in.
    #[error("etcd does not allow this user")]
    PermissionDenied(#[source] Cause),
    /// `FAILED_PRECONDITION`, authentication is not enabled: a login was given that the server does not take.
    #[error("etcd takes no logins")]
    NoLogins(#[source] Cause),
    /// `INVALID_ARGUMENT`, too many operations or too large: the server's limits are lower than this side believes.
    #[error("etcd does not take a request of this size")]
    TooLarge(#[source] Cause),
    /// `NOT_FOUND`, lease not found: somebody revoked the lease, and the one that replaced it too. Nothing was stored.
    #[error("the lease is gone")]
    LeaseGone(#[source] Cause),
    /// `OUT_OF_RANGE`, compacted: the history was compacted past the revision that was asked for.
    #[error("the revision has been compacted")]
    Compacted(#[source] Cause),
    /// `DATA_LOSS`: the members of the cluster disagree, and refuse to serve.
    #[error("the cluster of etcd is corrupt")]
    ClusterCorrupt(#[source] Cause),
    /// There is no lease to store a value with, for the reason in the source. The value was not sent.
    #[error("no lease could be had from etcd")]
    NoLease(#[source] Box<EtcdError>),
    /// Any other error.
    #[error("etcd replied with an error")]
    Replied(#[source] Cause),
    /// The answer is not what was asked for.
    #[error("etcd gave an answer that is not understood: {0}")]
    Answer(&'static str),
}

/// What the driver said, kept as the source of an error.
#[derive(Debug, Clone)]
pub struct Cause(Arc<etcd_client::Error>);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// What lies beneath it: the driver shows its own causes in its text, and passes on none of theirs.
impl Error for Cause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &*self.0 {
            etcd_client::Error::GRpcStatus(status) => status.source(),
            etcd_client::Error::TransportError(error) => error.source(),
            etcd_client::Error::IoError(error) => error.source(),
            other => other.source(),
        }
    }
}

/// What the driver says of a request that it took.
pub(crate) fn classify(error: etcd_client::Error) -> EtcdError {
    let member = match &error {
        etcd_client::Error::GRpcStatus(status) => of_status(status),
        etcd_client::Error::TransportError(error) if has_cause::<ConnectError>(error) => EtcdError::Connect,
        etcd_client::Error::TransportError(_) | etcd_client::Error::IoError(_) => EtcdError::Lost,
        // Nothing is watched here. The driver says this of a lease too: its stream ended before the answer.
        etcd_client::Error::WatchError(_) => EtcdError::Lost,
        _ => EtcdError::Replied,
    };
    member(Cause(Arc::new(error)))
}

fn of_status(status: &Status) -> fn(Cause) -> EtcdError {
    match (status.source(), status.code(), status.message()) {
        // Only the driver's own have a source: no server has said anything.
        (Some(source), ..) if has_cause::<ConnectError>(source) => EtcdError::Connect,
        (Some(_), ..) => EtcdError::Lost,
        (None, code, name) => of_code(code, name),
    }
}

fn of_code(code: Code, name: &str) -> fn(Cause) -> EtcdError {
    match (code, name) {
        (Code::Unavailable, "etcdserver: no leader") => EtcdError::NoLeader,
        (Code::Unavailable, _) => EtcdError::Unavailable,
        (Code::DeadlineExceeded, _) => EtcdError::TimedOut,
        (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded") => EtcdError::NoSpace,
        (Code::ResourceExhausted, "etcdserver: too many requests") => EtcdError::TooManyRequests,
        (Code::Unauthenticated, _) => EtcdError::Unauthenticated,
        (Code::InvalidArgument, "etcdserver: revision of auth store is old")
        | (Code::Unknown, "auth: revision in header is old") => EtcdError::Unauthenticated,
        (Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password") => {
            EtcdError::WrongLogin
        }
        // Without a login, and with one whose user is gone.
        (Code::PermissionDenied, _)
        | (Code::InvalidArgument, "etcdserver: user name is empty")
        | (Code::FailedPrecondition, "etcdserver: user name not found") => EtcdError::PermissionDenied,
        (Code::FailedPrecondition, "etcdserver: authentication is not enabled") => EtcdError::NoLogins,
        (Code::InvalidArgument, "etcdserver: too many operations in txn request")
        | (Code::InvalidArgument, "etcdserver: request is too large") => EtcdError::TooLarge,
        (Code::NotFound, "etcdserver: requested lease not found") => EtcdError::LeaseGone,
        (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted") => EtcdError::Compacted,
        (Code::DataLoss, _) => EtcdError::ClusterCorrupt,
        _ => EtcdError::Replied,
    }
}

/// Whether a lease was refused because it is there already: an earlier request for it came through.
pub(crate) fn is_granted_already(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status) if status.code() == Code::FailedPrecondition
        && status.message() == "etcdserver: lease already exists")
}

fn has_cause<T: Error + 'static>(error: &(dyn Error + 'static)) -> bool {
    error.is::<T>() || error.source().is_some_and(has_cause::<T>)
}

impl EtcdError {
    /// Whether another member may well do what this one did not.
    pub(crate) const fn speaks_for_one_member(&self) -> bool {
        matches!(
            self,
            Self::Connect(_)
                | Self::NoConnectionInTime
                | Self::Lost(_)
                | Self::NoAnswerInTime
                | Self::TimedOut(_)
                | Self::NoLeader(_)
                | Self::Unavailable(_)
        )
    }
}

impl BaseErrorSet for EtcdError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Connect(_) | Self::Lost(_) => ErrorKind::Connection,
            Self::NoConnectionInTime | Self::NoAnswerInTime | Self::TimedOut(_) => ErrorKind::Timeout,
            Self::NoLeader(_) | Self::Unavailable(_) | Self::LeaseGone(_) | Self::Compacted(_) => {
                ErrorKind::NotReady
            }
            Self::TooManyRequests(_) => ErrorKind::Overloaded,
            Self::NoSpace(_) => ErrorKind::StorageFull,
            Self::Unauthenticated(_) | Self::WrongLogin(_) | Self::PermissionDenied(_) => {
                ErrorKind::Unauthorized
            }
            Self::NoLogins(_) | Self::TooLarge(_) => ErrorKind::Misconfigured,
            Self::ClusterCorrupt(_) => ErrorKind::Corrupt,
            Self::NoLease(error) => error.kind(),
            Self::Replied(_) | Self::Answer(_) => ErrorKind::Bug,
        }
    }

    fn effect(&self) -> Effect {
        match self {
            Self::Lost(_)
            | Self::NoAnswerInTime
            | Self::TimedOut(_)
            | Self::Unavailable(_)
            | Self::NoSpace(_)
            | Self::Replied(_)
            | Self::Answer(_) => Effect::Unknown,
            _ => Effect::NotApplied,
        }
    }

    fn samples() -> Vec<Self> {
        let connect = Status::from_error(Box::new(ConnectError("refused".into())));
        let lost = Status::from_error("connection reset".into());
        let mut samples: Vec<_> =
            ANSWERS.iter().map(|(code, name)| classify(Status::new(*code, *name).into())).collect();
        samples.extend([connect, lost].map(|status| classify(status.into())));
        samples.push(Self::NoConnectionInTime);
        samples.push(Self::NoAnswerInTime);
        samples.push(Self::NoLease(Box::new(Self::NoAnswerInTime)));
        samples.push(Self::Answer("an answer has no header"));
        samples
    }
}

/// One answer of etcd for each member.
const ANSWERS: [(Code, &str); 15] = [
    (Code::DeadlineExceeded, "context deadline exceeded"),
    (Code::Unavailable, "etcdserver: no leader"),
    (Code::Unavailable, "etcdserver: request timed out"),
    (Code::ResourceExhausted, "etcdserver: too many requests"),
    (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded"),
    (Code::Unauthenticated, "etcdserver: invalid auth token"),
    (Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password"),
    (Code::PermissionDenied, "etcdserver: permission denied"),
    (Code::FailedPrecondition, "etcdserver: authentication is not enabled"),
    (Code::InvalidArgument, "etcdserver: too many operations in txn request"),
    (Code::NotFound, "etcdserver: requested lease not found"),
    (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted"),
    (Code::DataLoss, "etcdserver: corrupt cluster"),
    (Code::Unknown, "something new"),
    (Code::Internal, "something new"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(code: Code, name: &str) -> (ErrorKind, Effect) {
        let error = classify(Status::new(code, name).into());
        (error.kind(), error.effect())
    }

    #[test]
    fn answers_are_told_apart_by_code_and_name() {
        use Effect::{NotApplied, Unknown};
        use ErrorKind::{
            Bug, Corrupt, Misconfigured, NotReady, Overloaded, StorageFull, Timeout, Unauthorized,
        };
        let expected = [
            (Timeout, Unknown),
            (NotReady, NotApplied),
            (NotReady, Unknown),
            (Overloaded, NotApplied),
            (StorageFull, Unknown),
            (Unauthorized, NotApplied),
            (Unauthorized, NotApplied),
            (Unauthorized, NotApplied),
            (Misconfigured, NotApplied),
            (Misconfigured, NotApplied),
            (NotReady, NotApplied),
            (NotReady, NotApplied),
            (Corrupt, NotApplied),
            (Bug, Unknown),
            (Bug, Unknown),
        ];
        for ((code, name), expected) in ANSWERS.into_iter().zip(expected) {
            assert_eq!(reply(code, name), expected, "{code:?} {name}");
        }
        for (code, name, expected) in [
            (Code::Unavailable, "etcdserver: leader changed", (NotReady, Unknown)),
            (Code::Unavailable, "etcdserver: server stopped", (NotReady, Unknown)),
            (Code::InvalidArgument, "etcdserver: user name is empty", (Unauthorized, NotApplied)),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old", (Unauthorized, NotApplied)),
            (Code::InvalidArgument, "etcdserver: request is too large", (Misconfigured, NotApplied)),
            (Code::InvalidArgument, "etcdserver: duplicate key given in txn request", (Bug, Unknown)),
            (Code::ResourceExhausted, "grpc: received message larger than max", (Bug, Unknown)),
            (Code::NotFound, "something new", (Bug, Unknown)),
        ] {
            assert_eq!(reply(code, name), expected, "{code:?} {name}");
        }
    }

    #[test]
    fn names_are_compared_whole() {
        for name in ["no leader", "x etcdserver: no leader", "etcdserver: no leader now"] {
            assert_eq!(reply(Code::Unavailable, name).1, Effect::Unknown, "{name}");
        }
    }

    #[test]
    fn what_was_sent_may_have_been_done_and_what_was_not_was_not() {
        let status = |error: Box<dyn Error + Send + Sync>| classify(Status::from_error(error).into());
        let refused = status(Box::new(ConnectError("refused".into())));
        assert_eq!((refused.kind(), refused.effect()), (ErrorKind::Connection, Effect::NotApplied));
        let lost = status("connection reset".into());
        assert_eq!((lost.kind(), lost.effect()), (ErrorKind::Connection, Effect::Unknown));
        let no_lease = EtcdError::NoLease(Box::new(EtcdError::NoAnswerInTime));
        assert_eq!((no_lease.kind(), no_lease.effect()), (ErrorKind::Timeout, Effect::NotApplied));
    }

    #[test]
    fn the_cause_is_the_source_and_not_said_twice() {
        let error = classify(Status::new(Code::Unavailable, "etcdserver: no leader").into());
        assert_eq!(error.to_string(), "etcd has no leader");
        assert!(error.source().unwrap().to_string().contains("etcdserver: no leader"));
    }

    #[test]
    fn the_chain_of_causes_goes_on_to_its_end() {
        let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let status = Status::from_error(Box::new(ConnectError(Box::new(refused()))));
        let io = std::io::Error::other(ConnectError(Box::new(refused())));
        for error in [classify(status.into()), classify(io.into())] {
            let root = std::iter::successors(error.source(), |&error| error.source()).last().unwrap();
            let root = root.downcast_ref::<std::io::Error>().expect("the last one is the system's");
            assert_eq!(root.kind(), std::io::ErrorKind::ConnectionRefused, "{error:?}");
        }
    }

    #[test]
    fn there_is_a_sample_of_each_member() {
        let names: std::collections::HashSet<_> = EtcdError::samples()
            .iter()
            .map(|sample| format!("{sample:?}").split(['(', ' ']).next().unwrap().to_owned())
            .collect();
        assert_eq!(names.len(), 20, "{names:?}");
    }
}
