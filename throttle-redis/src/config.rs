//! [`RedisConfig`]: where Redis is, who asks, and how long is waited.

use std::fmt;
use std::time::Duration;

use redis::{ConnectionAddr, IntoConnectionInfo, TlsCertificates};
use throttle_core::{SetupError, is_login_cut_short, validate_prefix, validate_span};

/// Where Redis is, as whom to ask, and how long to wait.
///
/// | URL | server |
/// |---|---|
/// | `redis://[user:password@]host[:6379][/database]` | one |
/// | `rediss://…` | one, through TLS |
/// | `unix:///path/to/socket[?db=…&user=…&pass=…]` | one, through a socket |
/// | `redis+sentinel://[user:password@]host[:26379][,host…]/service[/database]` | the primary that these sentinels name |
/// | `redis+cluster://[user:password@]host[:6379][,host…]` | a cluster, found through any of these nodes |
///
/// With `rediss+…` servers and sentinels are reached through TLS. Characters of user and password that mean something in
/// URLs are written in percent-encoding.
///
/// ```
/// use std::time::Duration;
/// use throttle_redis::RedisConfig;
///
/// let config = RedisConfig::new("redis+sentinel://limiter:secret@s1,s2:26380/main/2")?
///     .prefix("shop")?
///     .response_deadline(Duration::from_millis(100))?;
/// assert!(!format!("{config:?}").contains("secret"));
/// # Ok::<(), throttle_core::SetupError>(())
/// ```
#[derive(Clone)]
pub struct RedisConfig {
    pub(crate) servers: Servers,
    pub(crate) settings: Settings,
    pub(crate) sentinel_login: Option<Login>,
    pub(crate) root_certificates: Option<Vec<u8>>,
}

/// What does not depend on where the server is.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) prefix: String,
    pub(crate) connect_deadline: Duration,
    pub(crate) response_deadline: Duration,
}

/// Where to connect to.
#[derive(Clone)]
pub(crate) enum Servers {
    /// One server.
    One(redis::ConnectionInfo),
    /// Sentinels, with the login and database of the servers they name.
    Sentinel { sentinels: Vec<redis::ConnectionInfo>, service: String },
    /// Some nodes of a cluster.
    Cluster(Vec<redis::ConnectionInfo>),
}

/// User and password.
#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
}

impl RedisConfig {
    /// The servers of `url`; everything else as it is by default.
    ///
    /// # Errors
    ///
    /// [`SetupError::Url`] if it is none of the URLs above. The password is not in the error.
    pub fn new(url: &str) -> Result<Self, SetupError> {
        Ok(Self {
            servers: Servers::parse(url)?,
            settings: Settings::default(),
            sentinel_login: None,
            root_certificates: None,
        })
    }

    /// What the names of all keys start with, `throttle` by default: who shares a server takes one of their own.
    ///
    /// # Errors
    ///
    /// Those of [`validate_prefix`].
    pub fn prefix(mut self, prefix: &str) -> Result<Self, SetupError> {
        validate_prefix(prefix)?;
        prefix.clone_into(&mut self.settings.prefix);
        Ok(self)
    }

    /// How long making a connection may take, 1 s by default.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] if it is zero, or longer than 365 days.
    pub fn connect_deadline(mut self, deadline: Duration) -> Result<Self, SetupError> {
        self.settings.connect_deadline = validate_span("connect_deadline", deadline)?;
        Ok(self)
    }

    /// How long a call may take, 250 ms by default, waiting for a connection included.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] if it is zero, or longer than 365 days.
    pub fn response_deadline(mut self, deadline: Duration) -> Result<Self, SetupError> {
        self.settings.response_deadline = validate_span("response_deadline", deadline)?;
        Ok(self)
    }

    /// User and password for the sentinels themselves; those of the URL are for the servers. By default they are asked
    /// without.
    #[must_use]
    pub fn sentinel_login(mut self, user: Option<&str>, password: &str) -> Self {
        self.sentinel_login = Some(Login { user: user.map(str::to_owned), password: password.to_owned() });
        self
    }

    /// Trusts the certificate authorities of this PEM, and no others, in place of Mozilla's.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] if it is no PEM of certificates, or the URL does not say TLS.
    pub fn root_certificates(mut self, pem: &[u8]) -> Result<Self, SetupError> {
        let certificates = TlsCertificates { client_tls: None, root_cert: Some(pem.to_vec()) };
        let unusable = || setting("root_certificates", "expected certificates in PEM and a URL with TLS");
        for server in self.servers.each() {
            redis::Client::build_with_tls(server.clone(), certificates.clone()).map_err(|_| unusable())?;
        }
        if !pem.windows(11).any(|window| window == b"-----BEGIN ") {
            return Err(unusable());
        }
        self.root_certificates = Some(pem.to_vec());
        Ok(self)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            prefix: "throttle".to_owned(),
            connect_deadline: Duration::from_secs(1),
            response_deadline: Duration::from_millis(250),
        }
    }
}

impl Servers {
    fn parse(url: &str) -> Result<Self, SetupError> {
        let (scheme, rest) = url.split_once("://").ok_or_else(unknown_scheme)?;
        if scheme != "unix" && is_login_cut_short(url) {
            return Err(not_a_url("a /, ? or # in user or password is written %2F, %3F or %23"));
        }
        match scheme {
            "redis" | "rediss" | "unix" => one(url).map(Self::One),
            "redis+sentinel" | "rediss+sentinel" => {
                let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
                let (service, database) = path.split_once('/').unwrap_or((path, ""));
                if service.is_empty() {
                    return Err(not_a_url("a service is missing: redis+sentinel://host,host/service"));
                }
                let sentinels = several(scheme, hosts, 26_379, database)?;
                Ok(Self::Sentinel { sentinels, service: service.to_owned() })
            }
            "redis+cluster" | "rediss+cluster" => match rest.trim_end_matches('/') {
                hosts if hosts.contains('/') => Err(not_a_url("a cluster has no databases")),
                hosts => several(scheme, hosts, 6_379, "").map(Self::Cluster),
            },
            _ => Err(unknown_scheme()),
        }
    }

    pub(crate) fn each(&self) -> &[redis::ConnectionInfo] {
        match self {
            Self::One(server) => std::slice::from_ref(server),
            Self::Sentinel { sentinels: servers, .. } | Self::Cluster(servers) => servers,
        }
    }

    pub(crate) fn use_tls(&self) -> bool {
        self.each().iter().any(|server| matches!(server.addr(), ConnectionAddr::TcpTls { .. }))
    }
}

fn one(url: &str) -> Result<redis::ConnectionInfo, SetupError> {
    let server = url.into_connection_info().map_err(|_| not_a_url("host, port or database is not valid"))?;
    match server.addr() {
        ConnectionAddr::TcpTls { insecure: true, .. } => Err(not_a_url("certificates are always checked")),
        _ => Ok(server),
    }
}

/// Each host as if it were alone, so that the driver reads names, IPv6 addresses and percent-encoding.
fn several(
    scheme: &str,
    hosts: &str,
    default_port: u16,
    database: &str,
) -> Result<Vec<redis::ConnectionInfo>, SetupError> {
    let scheme = scheme.split('+').next().unwrap_or_default();
    let (login, hosts) = hosts.rsplit_once('@').map_or(("", hosts), |(login, hosts)| (login, hosts));
    if login.contains('@') {
        return Err(not_a_url("one login stands before all hosts, and an @ in it is written %40"));
    }
    let at = if login.is_empty() { "" } else { "@" };
    let url = |host: &str| {
        let name_ends = host.rfind(']').unwrap_or(0);
        let has_port = host.get(name_ends..).is_some_and(|rest| rest.contains(':'));
        let port = if has_port { String::new() } else { format!(":{default_port}") };
        format!("{scheme}://{login}{at}{host}{port}/{database}")
    };
    hosts.split(',').map(|host| one(&url(host))).collect()
}

fn unknown_scheme() -> SetupError {
    not_a_url("expected redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://")
}

fn not_a_url(reason: &str) -> SetupError {
    SetupError::Url { reason: reason.to_owned() }
}

pub(crate) fn setting(setting: &'static str, reason: &str) -> SetupError {
    SetupError::Setting { setting, reason: reason.to_owned() }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("servers", &self.servers)
            .field("settings", &self.settings)
            .field("sentinel_login", &self.sentinel_login.is_some())
            .field("root_certificates", &self.root_certificates.is_some())
            .finish()
    }
}

/// Addresses and the service; no login.
impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::One(_) => "One",
            Self::Sentinel { service, .. } => service,
            Self::Cluster(_) => "Cluster",
        };
        let addresses: Vec<_> = self.each().iter().map(|server| server.addr().to_string()).collect();
        f.debug_tuple(name).field(&addresses).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(url: &str) -> Vec<String> {
        let config = RedisConfig::new(url).unwrap();
        config.servers.each().iter().map(|server| server.addr().to_string()).collect()
    }

    #[test]
    fn urls_name_servers() {
        assert_eq!(addresses("redis://h"), ["h:6379"]);
        assert_eq!(addresses("rediss://h:1/3"), ["h:1"]);
        assert_eq!(addresses("unix:///run/a@b/redis.sock?user=a@b&db=2"), ["/run/a@b/redis.sock"]);
        assert_eq!(addresses("redis+sentinel://a,[::1],b:1/main"), ["a:26379", "::1:26379", "b:1"]);
        assert_eq!(addresses("redis+cluster://u:p@a,b:7001/"), ["a:6379", "b:7001"]);
        assert!(RedisConfig::new("rediss+cluster://a").unwrap().servers.use_tls());
    }

    #[test]
    fn login_service_and_database_are_read() {
        let config = RedisConfig::new("redis+sentinel://limiter:p%40ss@a,b/main/2").unwrap();
        let Servers::Sentinel { sentinels, service } = &config.servers else { panic!("{config:?}") };
        let login = sentinels[1].redis_settings();
        assert_eq!((service.as_str(), login.db()), ("main", 2));
        assert_eq!((login.username(), login.password()), (Some("limiter"), Some("p@ss")));
    }

    #[test]
    fn what_is_no_url_says_what_is_expected_and_no_secret() {
        for url in [
            "",
            "localhost",
            "http://h",
            "redis+sentinel://u:secret@h",
            "redis+sentinel://u:1/secret@h",
            "redis+sentinel://u:1/secret@h/main",
            "redis+sentinel://u:p@secret?a@h/main",
            "redis+cluster://u:p@secret#a@h",
            "redis://u:p@secret/a@h",
            "redis+cluster://u:secret@h/1",
            "redis://u:secret@:port",
            "redis://u:secret@h/database",
            "redis+cluster://u:secret@",
            "redis+cluster://u:secret@a,,b",
            "redis+sentinel://u:secret@a,u:secret@b/main",
            "rediss://u:secret@h#insecure",
        ] {
            let error = RedisConfig::new(url).unwrap_err();
            assert!(matches!(error, SetupError::Url { .. }), "{url}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn no_secret_is_in_debug() {
        let config =
            RedisConfig::new("redis+sentinel://u:secret@h/main").unwrap().sentinel_login(None, "secret");
        let text = format!("{config:?}");
        assert!(text.contains("h:26379") && !text.contains("secret"), "{text}");
    }

    #[test]
    fn settings_have_ranges() {
        let config = || RedisConfig::new("redis://h").unwrap();
        for prefix in ["", "a:1", "a:1:b", "{a}", &"x".repeat(65)] {
            assert!(config().prefix(prefix).is_err(), "{prefix}");
        }
        for span in [Duration::ZERO, Duration::MAX] {
            config().response_deadline(span).unwrap_err();
            config().connect_deadline(span).unwrap_err();
        }
        config().root_certificates(b"no PEM").unwrap_err();
        let tls = RedisConfig::new("rediss://h").unwrap();
        tls.root_certificates(b"no PEM").unwrap_err();
    }
}
