//! [`Tls`]: whom to trust and who to be.

use std::fmt;

use etcd_client::{Certificate, Identity, TlsOptions};
use throttle_core::SetupError;

use super::setting;

/// Whom to trust and who to be, through TLS. By default: Mozilla's certificate authorities, and nobody.
#[derive(Clone, Default)]
#[must_use]
pub struct Tls {
    authorities: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    /// Mozilla's certificate authorities, and no certificate of one's own.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the certificate authorities of this PEM, and no others.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] if it is no PEM of certificates.
    pub fn authorities(mut self, pem: &[u8]) -> Result<Self, SetupError> {
        self.authorities = Some(pem_of("authorities", "CERTIFICATE-----", pem)?);
        Ok(self)
    }

    /// Shows this certificate to the servers, and proves it with this key; both in PEM.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] if they are no PEM of a certificate and a private key.
    pub fn identity(mut self, certificate: &[u8], key: &[u8]) -> Result<Self, SetupError> {
        let certificate = pem_of("certificate", "CERTIFICATE-----", certificate)?;
        self.identity = Some((certificate, pem_of("key", "PRIVATE KEY-----", key)?));
        Ok(self)
    }

    pub(super) fn options(&self) -> TlsOptions {
        let mut options = TlsOptions::new();
        options = match &self.authorities {
            Some(pem) => options.ca_certificate(Certificate::from_pem(pem)),
            None => options.with_webpki_roots(),
        };
        match &self.identity {
            Some((certificate, key)) => options.identity(Identity::from_pem(certificate, key)),
            None => options,
        }
    }
}

fn pem_of(name: &'static str, what: &str, pem: &[u8]) -> Result<Vec<u8>, SetupError> {
    let is_pem =
        std::str::from_utf8(pem).is_ok_and(|text| text.contains("-----BEGIN ") && text.contains(what));
    if is_pem {
        Ok(pem.to_vec())
    } else {
        Err(setting(name, &format!("expected PEM with -----BEGIN … {what}")))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("authorities", &self.authorities.is_some())
            .field("identity", &self.identity.is_some())
            .finish()
    }
}
