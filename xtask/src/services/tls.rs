//! A certificate authority made for one start, and the server certificate it signs.

use std::fs;
use std::path::PathBuf;

use xshell::{Shell, cmd};

use super::site::Site;
use crate::util::Result;

const CONFIG: &str = "
[req]
distinguished_name = name
prompt = no
[name]
CN = throttle tests
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = DNS:localhost, IP:127.0.0.1
authorityKeyIdentifier = keyid
";

/// The files of a server certificate.
#[derive(Debug)]
pub(crate) struct Certificate {
    pub(crate) authority: PathBuf,
    pub(crate) server: PathBuf,
    pub(crate) key: PathBuf,
}

impl Certificate {
    /// Makes all of it in the folder of the service, valid for localhost and 127.0.0.1.
    pub(crate) fn make(site: &Site) -> Result<Self> {
        let sh = Shell::new()?;
        sh.change_dir(site.home());
        fs::write(site.file("openssl.cnf"), CONFIG)?;
        let key =
            ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-config", "openssl.cnf"];
        let authority =
            ["-x509", "-days", "30", "-extensions", "authority", "-keyout", "ca.key", "-out", "ca.pem"];
        let request = ["-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr"];
        let sign = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30"];
        let extend = ["-extfile", "openssl.cnf", "-extensions", "server"];
        cmd!(sh, "openssl req {key...} {authority...}").quiet().ignore_stderr().run()?;
        cmd!(sh, "openssl req -new {key...} {request...}").quiet().ignore_stderr().run()?;
        cmd!(sh, "openssl x509 -req -in server.csr -out server.pem {sign...} {extend...}")
            .quiet()
            .ignore_stderr()
            .run()?;
        Ok(Self {
            authority: self::authority(site),
            server: site.file("server.pem"),
            key: site.file("server.key"),
        })
    }
}

/// The certificate that clients must trust.
pub(crate) fn authority(site: &Site) -> PathBuf {
    site.file("ca.pem")
}
