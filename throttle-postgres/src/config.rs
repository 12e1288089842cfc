//! [`PostgresConfig`]: where PostgreSQL is, where the states are in it, and how long is waited.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use throttle_core::{SetupError, is_login_cut_short, validate_span};

/// How the names end of tables, indexes and sequences that belong to a table.
const BELONGINGS: [&str; 4] = ["_schema", "_locks", "_fences", "_pkey"];

/// The most that `max_connections` of a server can be. The pool makes room for all of its own at once.
const MOST_CONNECTIONS: u32 = 262_143;

/// Where PostgreSQL is, where the states are in it, and how long to wait.
///
/// The URL is `postgres://user:password@host[:5432]/database`, or a host that is the percent-encoded folder of a socket.
/// Of its parameters `sslmode` and `sslrootcert` say whether TLS is used and whom it trusts; characters of user and
/// password that mean something in URLs are written in percent-encoding.
///
/// ```
/// use std::time::Duration;
/// use throttle_postgres::PostgresConfig;
///
/// let config = PostgresConfig::new("postgres://limiter:secret@db/shop?sslmode=verify-full")?
///     .schema("limits")?
///     .response_deadline(Duration::from_millis(100))?;
/// assert!(!format!("{config:?}").contains("secret"));
/// # Ok::<(), throttle_core::SetupError>(())
/// ```
#[derive(Clone)]
pub struct PostgresConfig {
    pub(crate) options: PgConnectOptions,
    pub(crate) max_connections: u32,
    pub(crate) settings: Settings,
}

/// What does not depend on where the server is.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) schema: String,
    pub(crate) table: String,
    pub(crate) unlogged: bool,
    pub(crate) migrate: bool,
    pub(crate) acquire_deadline: Duration,
    pub(crate) response_deadline: Duration,
    pub(crate) sweep_interval: Option<Duration>,
}

impl PostgresConfig {
    /// The server of `url`; everything else as it is by default.
    ///
    /// # Errors
    ///
    /// [`SetupError::Url`] if it is none of the URLs above. The password is not in the error.
    pub fn new(url: &str) -> Result<Self, SetupError> {
        let fail = |reason: &str| SetupError::Url { reason: reason.to_owned() };
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(fail("expected postgres://user:password@host/database"));
        }
        if is_login_cut_short(url) {
            return Err(fail(
                "a /, ? or # in user or password is written %2F, %3F or %23, and an @ elsewhere %40",
            ));
        }
        let options = PgConnectOptions::from_str(url)
            .map_err(|_| fail("host, port, database or a parameter of postgres:// is not valid"))?;
        // Poolers refuse settings they do not know, and drop prepared statements; statements have keys in them.
        let options =
            options.extra_float_digits(None::<i8>).statement_cache_capacity(0).disable_statement_logging();
        Ok(Self { options, max_connections: 8, settings: Settings::default() })
    }

    /// The schema that the table and its functions are in, `public` by default.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] if it is not 1 to 40 lower-case letters, digits and underscores, the first no digit.
    pub fn schema(mut self, schema: &str) -> Result<Self, SetupError> {
        self.settings.schema = identifier("schema", schema)?;
        Ok(self)
    }

    /// The table, `throttle` by default. What belongs to it begins with its name: `throttle_decide_1`.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] as for [`schema`](Self::schema), and if it is the name of what belongs to another table, such
    /// as `throttle_locks`.
    pub fn table(mut self, table: &str) -> Result<Self, SetupError> {
        self.settings.table = identifier("table", table)?;
        if BELONGINGS.iter().any(|belonging| table.ends_with(belonging)) {
            return Err(setting("table", &format!("it may not end in {}", BELONGINGS.join(", "))));
        }
        Ok(self)
    }

    /// Whether a table that is made is unlogged: about twice as fast to write, empty after a crash of the server, and not
    /// replicated. Logged by default. A table that exists stays as it is.
    #[must_use]
    pub const fn unlogged(mut self, unlogged: bool) -> Self {
        self.settings.unlogged = unlogged;
        self
    }

    /// Whether connecting makes the schema and table, or brings them up to date. By default it does. Who says no runs
    /// [`schema_sql`](crate::PostgresBackend::schema_sql).
    #[must_use]
    pub const fn migrate(mut self, migrate: bool) -> Self {
        self.settings.migrate = migrate;
        self
    }

    /// How many connections there may be, 8 by default. While the server lets nobody in there is one more for a moment, to
    /// learn why.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] if it is zero, or more than 262,143: no server takes as many.
    pub fn max_connections(mut self, connections: u32) -> Result<Self, SetupError> {
        if connections == 0 || connections > MOST_CONNECTIONS {
            return Err(setting("max_connections", "use 1 to 262,143"));
        }
        self.max_connections = connections;
        Ok(self)
    }

    /// How long a call may wait for a connection, making one included: 1 s by default.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] if it is zero, or longer than 365 days.
    pub fn acquire_deadline(mut self, deadline: Duration) -> Result<Self, SetupError> {
        self.settings.acquire_deadline = validate_span("acquire_deadline", deadline)?;
        Ok(self)
    }

    /// How long the server may take to answer, 500 ms by default.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] if it is zero, or longer than 365 days.
    pub fn response_deadline(mut self, deadline: Duration) -> Result<Self, SetupError> {
        self.settings.response_deadline = validate_span("response_deadline", deadline)?;
        Ok(self)
    }

    /// How often expired rows are removed, every 30 s by default; never if `None`, for those who have another process do
    /// it. Of several processes one sweeps at a time.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] if it is zero, or longer than 365 days.
    pub fn sweep_interval(mut self, interval: Option<Duration>) -> Result<Self, SetupError> {
        self.settings.sweep_interval =
            interval.map(|interval| validate_span("sweep_interval", interval)).transpose()?;
        Ok(self)
    }

    /// Trusts the certificate authorities of this PEM, and no others, in place of Mozilla's; connects through TLS only.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] if it is no PEM.
    pub fn root_certificates(mut self, pem: &[u8]) -> Result<Self, SetupError> {
        if !pem.windows(27).any(|window| window == b"-----BEGIN CERTIFICATE-----") {
            return Err(setting("root_certificates", "expected certificates in PEM"));
        }
        self.options = self.options.ssl_mode(PgSslMode::VerifyFull).ssl_root_cert_from_pem(pem.to_vec());
        Ok(self)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            schema: "public".to_owned(),
            table: "throttle".to_owned(),
            unlogged: false,
            migrate: true,
            acquire_deadline: Duration::from_secs(1),
            response_deadline: Duration::from_millis(500),
            sweep_interval: Some(Duration::from_secs(30)),
        }
    }
}

impl Settings {
    /// What stands for `public.throttle` in our SQL: the table, and the beginning of everything that belongs to it.
    pub(crate) fn prefix(&self) -> String {
        format!("\"{}\".{}", self.schema, self.table)
    }

    /// How long a statement waits for rows that others hold, in milliseconds.
    pub(crate) fn patience(&self) -> u128 {
        self.response_deadline.as_millis().clamp(1, 1 << 30)
    }
}

fn identifier(name: &'static str, text: &str) -> Result<String, SetupError> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let starts_well = text.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    if !starts_well || text.len() > 40 || !text.bytes().all(allowed) {
        return Err(setting(
            name,
            "use 1 to 40 lower-case letters, digits and underscores, the first no digit",
        ));
    }
    Ok(text.to_owned())
}

fn setting(setting: &'static str, reason: &str) -> SetupError {
    SetupError::Setting { setting, reason: reason.to_owned() }
}

/// Address and database; no login.
impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("host", &self.options.get_host())
            .field("port", &self.options.get_port())
            .field("database", &self.options.get_database())
            .field("max_connections", &self.max_connections)
            .field("settings", &self.settings)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_servers() {
        let config = PostgresConfig::new("postgres://u:p%40ss@h:1/d").unwrap();
        let options = &config.options;
        assert_eq!((options.get_host(), options.get_port(), options.get_database()), ("h", 1, Some("d")));
        assert_eq!(options.get_username(), "u");
        let odd = PostgresConfig::new("postgres://u:p@h/d%40e?application_name=a%40b").unwrap();
        assert_eq!(odd.options.get_database(), Some("d@e"));
    }

    #[test]
    fn what_is_no_url_says_what_is_expected_and_no_secret() {
        for url in [
            "",
            "localhost",
            "mysql://h",
            "postgres://u:secret@h:port/d",
            "postgres://u:secret@h/d?sslmode=x",
            "postgres://u:1/secret@h/d",
            "postgres://u:p@secret?a@h/d",
            "postgres://u:p@secret#a@h/d",
        ] {
            let error = PostgresConfig::new(url).unwrap_err();
            assert!(matches!(error, SetupError::Url { .. }), "{url}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn no_secret_is_in_debug() {
        let text = format!("{:?}", PostgresConfig::new("postgres://u:secret@h/d").unwrap());
        assert!(text.contains("\"h\"") && !text.contains("secret"), "{text}");
    }

    #[test]
    fn settings_have_ranges() {
        let config = || PostgresConfig::new("postgres://h/d").unwrap();
        for name in ["", "A", "a b", "a\"b", "a;--", "1a", "ä", "a.b", &"x".repeat(41)] {
            config().schema(name).unwrap_err();
            config().table(name).unwrap_err();
        }
        assert_eq!(config().schema("user").unwrap().table("t_1").unwrap().settings.prefix(), "\"user\".t_1");
        for taken in ["throttle_schema", "throttle_locks", "throttle_locks_pkey", "a_fences"] {
            config().table(taken).unwrap_err();
        }
        for connections in [0, MOST_CONNECTIONS + 1, u32::MAX] {
            config().max_connections(connections).unwrap_err();
        }
        config().max_connections(MOST_CONNECTIONS).unwrap();
        for span in [Duration::ZERO, Duration::MAX] {
            config().acquire_deadline(span).unwrap_err();
            config().response_deadline(span).unwrap_err();
            config().sweep_interval(Some(span)).unwrap_err();
        }
        config().sweep_interval(None).unwrap();
        config().root_certificates(b"no PEM").unwrap_err();
    }
}
