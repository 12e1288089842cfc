//! [`EtcdConfig`]: where etcd is, who asks, how long is waited, and what the server allows.

mod tls;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::ConnectOptions;
use percent_encoding::percent_decode_str;
use throttle_core::{Clock, SetupError, WallClock, validate_prefix, validate_span};

pub use self::tls::Tls;

const DEFAULT_PORT: u16 = 2_379;

/// The server's own default of `--max-txn-ops`.
const MAX_TXN_OPS: usize = 128;

/// Where etcd is, as whom to ask, and how long to wait.
///
/// `etcd://[user:password@]host[:2379][,host…]` names the members of a cluster, or some of them; with `etcds://` they are
/// reached through TLS. Characters of user and password that mean something in URLs are written in percent-encoding.
///
/// ```
/// use std::time::Duration;
/// use throttle_etcd::EtcdConfig;
///
/// let config = EtcdConfig::new("etcd://limiter:secret@e1,e2:22379,[::1]")?
///     .prefix("shop")?
///     .response_deadline(Duration::from_millis(200))?;
/// assert!(!format!("{config:?}").contains("secret"));
/// # Ok::<(), throttle_core::SetupError>(())
/// ```
#[derive(Clone)]
pub struct EtcdConfig {
    pub(crate) members: Vec<String>,
    pub(crate) settings: Settings,
    login: Option<Login>,
    tls: Option<Tls>,
}

/// What does not depend on where the servers are.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) prefix: String,
    pub(crate) connect_deadline: Duration,
    pub(crate) response_deadline: Duration,
    pub(crate) contention_deadline: Duration,
    pub(crate) max_txn_ops: usize,
    pub(crate) remembered_keys: usize,
    pub(crate) skew_tolerance: Option<Duration>,
    pub(crate) clock: Arc<dyn Clock>,
}

#[derive(Clone)]
struct Login {
    user: String,
    password: String,
}

impl EtcdConfig {
    /// The members of `url`; everything else as it is by default.
    ///
    /// # Errors
    ///
    /// [`SetupError::Url`] if it is none of the URLs above. The password is not in the error.
    pub fn new(url: &str) -> Result<Self, SetupError> {
        let (scheme, rest) = url.split_once("://").ok_or_else(unknown_scheme)?;
        let tls = match scheme {
            "etcd" => None,
            "etcds" => Some(Tls::default()),
            _ => return Err(unknown_scheme()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (login, hosts) =
            rest.rsplit_once('@').map_or((None, rest), |(login, hosts)| (Some(login), hosts));
        Ok(Self {
            members: hosts.split(',').map(address).collect::<Result<_, _>>()?,
            settings: Settings::default(),
            login: login.map(Login::parse).transpose()?,
            tls,
        })
    }

    /// What the names of all keys start with, `throttle` by default: who shares a cluster takes one of their own.
    ///
    /// # Errors
    ///
    /// Those of [`validate_prefix`].
    pub fn prefix(mut self, prefix: &str) -> Result<Self, SetupError> {
        validate_prefix(prefix)?;
        prefix.clone_into(&mut self.settings.prefix);
        Ok(self)
    }

    /// How long connecting to one member and logging in there may take, 1 s by default.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] if it is zero, or longer than 365 days.
    pub fn connect_deadline(mut self, deadline: Duration) -> Result<Self, SetupError> {
        self.settings.connect_deadline = validate_span("connect_deadline", deadline)?;
        Ok(self)
    }

    /// How long one request to the cluster may take, 500 ms by default, tries at other members included.
    ///
    /// Connecting to a member comes on top, and so do another login when a token is gone and the request after it: each
    /// takes up to the [`connect_deadline`](Self::connect_deadline).
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] if it is zero, or longer than 365 days.
    pub fn response_deadline(mut self, deadline: Duration) -> Result<Self, SetupError> {
        self.settings.response_deadline = validate_span("response_deadline", deadline)?;
        Ok(self)
    }

    /// For how long a decision is tried again after others have changed its key, 2 s by default.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] if it is zero, or longer than 365 days.
    pub fn contention_deadline(mut self, deadline: Duration) -> Result<Self, SetupError> {
        self.settings.contention_deadline = validate_span("contention_deadline", deadline)?;
        Ok(self)
    }

    /// The server's `--max-txn-ops`, 128 by default: one transaction decides one key less than that.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] if it is less than 2.
    pub fn max_txn_ops(mut self, operations: usize) -> Result<Self, SetupError> {
        if operations < 2 {
            return Err(setting("max_txn_ops", "a transaction of ours takes at least 2 operations"));
        }
        self.settings.max_txn_ops = operations;
        Ok(self)
    }

    /// Of how many keys the last state is remembered, 10,000 by default; 0 for none.
    #[must_use]
    pub const fn remember(mut self, keys: usize) -> Self {
        self.settings.remembered_keys = keys;
        self
    }

    /// Has [`connect`](crate::EtcdBackend::connect) compare this clock with those of other processes, and warn through
    /// `tracing` if they differ by more than `tolerance`, or if they cannot be compared. Off by default: it costs a lease
    /// and a key of an hour for each process that starts.
    #[must_use]
    pub const fn warn_of_skew(mut self, tolerance: Duration) -> Self {
        self.settings.skew_tolerance = Some(tolerance);
        self
    }

    /// The clock that decides, by default the [`WallClock`]: it is right also after the machine was suspended.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.settings.clock = Arc::new(clock);
        self
    }

    /// Whom to trust and who to be.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] if the URL does not say TLS.
    pub fn tls(mut self, tls: Tls) -> Result<Self, SetupError> {
        if self.tls.is_none() {
            return Err(setting("tls", "expected a URL that starts with etcds://"));
        }
        self.tls = Some(tls);
        Ok(self)
    }

    pub(crate) fn without_login(self) -> Self {
        Self { login: None, ..self }
    }

    /// With the password in it, and a `Debug` that tells it: not to be kept.
    pub(crate) fn options(&self) -> ConnectOptions {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(self.settings.connect_deadline)
            .with_require_leader(true);
        if let Some(Login { user, password }) = &self.login {
            options = options.with_user(user, password);
        }
        match &self.tls {
            Some(tls) => options.with_tls(tls.options()),
            None => options,
        }
    }
}

impl Login {
    fn parse(text: &str) -> Result<Self, SetupError> {
        let (user, password) =
            text.split_once(':').ok_or_else(|| url("a password is missing: user:password@"))?;
        let decode = |text| {
            let text = percent_decode_str(text).decode_utf8();
            text.map(String::from).map_err(|_| url("user or password are no UTF-8"))
        };
        Ok(Self { user: decode(user)?, password: decode(password)? })
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            prefix: "throttle".to_owned(),
            connect_deadline: Duration::from_secs(1),
            response_deadline: Duration::from_millis(500),
            contention_deadline: Duration::from_secs(2),
            max_txn_ops: MAX_TXN_OPS,
            remembered_keys: 10_000,
            skew_tolerance: None,
            clock: Arc::new(WallClock),
        }
    }
}

/// `host:port`, with the default port if there is none.
fn address(host: &str) -> Result<String, SetupError> {
    let invalid = || url("a host or port is not valid");
    let name_ends = host.rfind(']').unwrap_or(0);
    let has_port = host.get(name_ends..).is_some_and(|rest| rest.contains(':'));
    let address = if has_port { host.to_owned() } else { format!("{host}:{DEFAULT_PORT}") };
    let (name, port) = address.rsplit_once(':').ok_or_else(invalid)?;
    let authority: tonic::codegen::http::uri::Authority = address.parse().map_err(|_| invalid())?;
    if name.is_empty() || port.parse::<u16>().is_err() || authority.as_str() != address {
        return Err(invalid());
    }
    Ok(address)
}

fn unknown_scheme() -> SetupError {
    url("expected etcd:// or etcds://")
}

fn url(reason: &str) -> SetupError {
    SetupError::Url { reason: reason.to_owned() }
}

fn setting(setting: &'static str, reason: &str) -> SetupError {
    SetupError::Setting { setting, reason: reason.to_owned() }
}

impl fmt::Debug for EtcdConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdConfig")
            .field("members", &self.members)
            .field("settings", &self.settings)
            .field("login", &self.login.is_some())
            .field("tls", &self.tls)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(url: &str) -> Vec<String> {
        EtcdConfig::new(url).unwrap().members
    }

    #[test]
    fn urls_name_members() {
        assert_eq!(members("etcd://h"), ["h:2379"]);
        assert_eq!(members("etcds://h:1/"), ["h:1"]);
        assert_eq!(members("etcd://u:p@a,[::1],b:1"), ["a:2379", "[::1]:2379", "b:1"]);
        assert!(EtcdConfig::new("etcds://a").unwrap().tls.is_some());
    }

    /// A monotonic clock would be behind those of the other machines for good, once this one was suspended.
    #[test]
    fn decisions_are_made_by_the_wall_clock() {
        let clock = EtcdConfig::new("etcd://h").unwrap().settings.clock;
        assert_eq!(format!("{clock:?}"), format!("{WallClock:?}"));
    }

    #[test]
    fn the_login_is_read() {
        let config = EtcdConfig::new("etcd://limiter:p%40ss@a").unwrap();
        let login = config.login.unwrap();
        assert_eq!((login.user.as_str(), login.password.as_str()), ("limiter", "p@ss"));
    }

    #[test]
    fn what_is_no_url_says_what_is_expected_and_no_secret() {
        for url in [
            "",
            "localhost",
            "http://h",
            "etcd://",
            "etcd://u:secret@",
            "etcd://secret@h",
            "etcd://u:secret@h:port",
            "etcd://u:secret@h:99999",
            "etcd://u:secret@a,,b",
            "etcd://u:%ff@h",
            "etcd://u:secret@h/path",
        ] {
            let error = EtcdConfig::new(url).unwrap_err();
            assert!(matches!(error, SetupError::Url { .. }), "{url}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn no_secret_is_in_debug() {
        let tls = Tls::new()
            .identity(b"-----BEGIN CERTIFICATE-----", b"-----BEGIN PRIVATE KEY-----secret")
            .unwrap();
        let config = EtcdConfig::new("etcds://u:secret@h").unwrap().tls(tls).unwrap();
        let text = format!("{config:?}");
        assert!(text.contains("h:2379") && !text.contains("secret"), "{text}");
    }

    #[test]
    fn settings_have_ranges() {
        let config = || EtcdConfig::new("etcd://h").unwrap();
        for prefix in ["", "a:1", "a:1:b", &"x".repeat(65)] {
            assert!(config().prefix(prefix).is_err(), "{prefix}");
        }
        for span in [Duration::ZERO, Duration::MAX] {
            config().response_deadline(span).unwrap_err();
            config().connect_deadline(span).unwrap_err();
            config().contention_deadline(span).unwrap_err();
        }
        config().max_txn_ops(1).unwrap_err();
        config().tls(Tls::new()).unwrap_err();
        Tls::new().authorities(b"no PEM").unwrap_err();
        Tls::new().identity(b"-----BEGIN CERTIFICATE-----", b"no PEM").unwrap_err();
    }
}
