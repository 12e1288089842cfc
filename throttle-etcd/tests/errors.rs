//! Every way in which etcd fails, provoked on one.

#![expect(clippy::panic, clippy::unwrap_used, reason = "test helpers fail by panicking")]

mod common;

use std::process::Command;
use std::str::FromStr;
use std::time::{Duration, Instant};

use common::own::Own;
use common::until;
use throttle_core::kernel::{LogEntry, PolicyState, SlidingLogState, StoredState};
use throttle_core::{
    Action, BaseErrorSet, CasError, ConnectError, Decision, Effect, ErrorKind, Outcome, Policy, Rule,
    StoreBackend, Timestamp, storage_key,
};
use throttle_etcd::{EtcdBackend, EtcdConfig, EtcdError, Tls};

fn policy() -> Policy {
    Policy::new("p", [Rule::gcra("100/h").unwrap()]).unwrap()
}

async fn consume(backend: &EtcdBackend) -> Result<Outcome, CasError<EtcdError>> {
    backend.decide(&Action::consume(&policy(), "key")).await
}

/// The kind of the error of one call, which certainly changed nothing.
async fn refusal(backend: &EtcdBackend) -> ErrorKind {
    let error = consume(backend).await.unwrap_err();
    assert_eq!(error.effect(), Effect::NotApplied, "{error:?}");
    error.kind()
}

async fn connect_error(config: EtcdConfig) -> (ErrorKind, Effect) {
    match EtcdBackend::connect(config).await.unwrap_err() {
        ConnectError::Unavailable(error) => (error.kind(), error.effect()),
        error => panic!("{error:?}"),
    }
}

async fn recovers(backend: &EtcdBackend, patience: Duration) {
    until("recovery", patience, async || match consume(backend).await {
        Ok(_) => true,
        Err(error) => {
            assert!(error.kind().is_transient(), "{error:?}");
            false
        }
    })
    .await;
}

/// A server that lets in `root`, and `limiter` for the keys of this library.
async fn with_users(settings: &[&str]) -> Own {
    let own = Own::start(settings).await;
    for command in [
        "user add root:secret",
        "role add root",
        "user grant-role root root",
        "user add limiter:pa@ss",
        "role add limiter",
        "role grant-permission limiter readwrite throttle: --prefix",
        "user grant-role limiter limiter",
        "auth enable",
    ] {
        own.ctl(&command.split(' ').collect::<Vec<_>>());
    }
    own
}

fn login(own: &Own, login: &str) -> EtcdConfig {
    let long = Duration::from_secs(10);
    let config = EtcdConfig::new(&own.url().replace("://", &format!("://{login}@"))).unwrap();
    config.response_deadline(long).unwrap().connect_deadline(long).unwrap()
}

#[tokio::test]
async fn refused() {
    let mut own = Own::start(&[]).await;
    own.kill(0);
    assert_eq!(connect_error(own.config()).await, (ErrorKind::Connection, Effect::NotApplied));
}

#[tokio::test]
async fn lost_and_back() {
    let mut own = Own::start(&[]).await;
    let backend = EtcdBackend::connect(own.config()).await.unwrap();
    recovers(&backend, Duration::from_secs(10)).await;
    own.kill(0);
    // What the connection took before its end was noticed may have been carried out; after that nothing is sent.
    until("the end of the connection", Duration::from_secs(10), async || {
        let error = consume(&backend).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
        error.effect() == Effect::NotApplied
    })
    .await;
    assert_eq!(refusal(&backend).await, ErrorKind::Connection);
    own.restart(0);
    recovers(&backend, Duration::from_secs(20)).await;
}

#[tokio::test]
async fn o_71_a_stalled_server_costs_the_deadline_and_no_more() {
    let own = Own::start(&[]).await;
    let deadline = Duration::from_millis(300);
    let backend = EtcdBackend::connect(own.config().response_deadline(deadline).unwrap()).await.unwrap();
    recovers(&backend, Duration::from_secs(10)).await;
    own.signal(0, "-STOP");
    for _ in 0..3 {
        let since = Instant::now();
        let error = consume(&backend).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
        assert!(since.elapsed() < deadline * 3, "{:?}", since.elapsed());
    }
    own.signal(0, "-CONT");
    recovers(&backend, Duration::from_secs(10)).await;
}

#[tokio::test]
async fn without_a_majority_there_is_no_leader() {
    let mut own = Own::cluster(3, &[]).await;
    let backend = EtcdBackend::connect(own.config()).await.unwrap();
    recovers(&backend, Duration::from_secs(10)).await;
    own.kill(1);
    own.kill(2);
    until("the end of the leadership", Duration::from_secs(10), async || {
        let error = consume(&backend).await.unwrap_err();
        assert!(error.kind().is_transient(), "{error:?}");
        matches!(error, CasError::Store(EtcdError::NoLeader(_))) && error.effect() == Effect::NotApplied
            || matches!(&error, CasError::Store(EtcdError::Connect(_)))
    })
    .await;
    own.restart(1);
    recovers(&backend, Duration::from_secs(20)).await;
}

#[tokio::test]
async fn o_86_no_space() {
    let own = Own::start(&["--quota-backend-bytes", "16777216"]).await;
    let backend = own.backend().await;
    consume(&backend).await.unwrap();
    let mut client = own.client().await;
    until("NOSPACE", Duration::from_secs(60), async || {
        client.put("filler", vec![0; 1 << 20], None).await.is_err()
    })
    .await;
    for key in ["key", "another"] {
        let error = backend.decide(&Action::consume(&policy(), key)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error:?}");
    }
    backend.decide(&Action::peek(&policy(), "key")).await.unwrap();

    let revision = client.get("filler", None).await.unwrap().header().unwrap().revision();
    own.ctl(&["compact", &revision.to_string()]);
    own.ctl(&["defrag"]);
    own.ctl(&["alarm", "disarm"]);
    recovers(&backend, Duration::from_secs(10)).await;
}

/// While the quota is passed, etcd carries out what it has let in already, and says of it that there is no space.
#[tokio::test]
async fn o_86_what_was_not_applied_when_space_ran_out_is_not_there() {
    let own = Own::start(&["--quota-backend-bytes", "33554432"]).await;
    let policy = Policy::new("p", (0..16).map(|_| Rule::fixed_window("100/d").unwrap())).unwrap();
    let keys: Vec<_> =
        (0..64).map(|of| (0..100).map(|nth| format!("{of:0180} {nth}")).collect::<Vec<_>>()).collect();
    let writers = keys.iter().map(async |keys| {
        // Each with transactions of its own.
        let (backend, mut client) = (own.backend().await, own.client().await);
        let actions: Vec<_> = keys.iter().map(|key| Action::consume(&policy, key)).collect();
        for filler in 0.. {
            let asked = backend.decide_many(&actions).await;
            if let Some(error) = asked.into_iter().find_map(Result::err) {
                return (filler, error);
            }
            let _ = client.put(format!("{filler} of {}", keys[0]), vec![0; 60_000], None).await;
        }
        unreachable!("there is always an end")
    });
    let ends = futures_util::future::join_all(writers).await;
    let backend = own.backend().await;
    for (keys, (rounds, error)) in keys.iter().zip(ends) {
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error:?}");
        let peeked = backend.decide(&Action::peek(&policy, &keys[0])).await.unwrap();
        let left = Decision::of(&Action::peek(&policy, &keys[0]), &peeked, 0).remaining();
        let used = 100 - left;
        assert!((rounds..=rounds + 1).contains(&used), "{used} of {rounds}");
        assert!(used == rounds || error.effect() == Effect::Unknown, "carried out, and said not to be");
    }
}

#[tokio::test]
async fn users() {
    let own = with_users(&[]).await;
    consume(&EtcdBackend::connect(login(&own, "limiter:pa%40ss")).await.unwrap()).await.unwrap();
    let elsewhere = login(&own, "limiter:pa%40ss").prefix("elsewhere").unwrap();
    for config in [own.patient(), login(&own, "limiter:wrong"), login(&own, "nobody:secret"), elsewhere] {
        let text = format!("{config:?}");
        assert_eq!(connect_error(config).await, (ErrorKind::Unauthorized, Effect::NotApplied), "{text}");
    }
}

/// The comparison of clocks is a diagnostic: that its keys are not allowed keeps nobody from deciding.
#[tokio::test]
async fn clocks_that_cannot_be_compared_stop_nobody() {
    let own = with_users(&[]).await;
    let root = ["--user", "root:secret"];
    for command in [
        "user add narrow:secret",
        "role add narrow",
        "role grant-permission narrow readwrite throttle:1: --prefix",
        "role grant-permission narrow read throttle:ping",
        "user grant-role narrow narrow",
    ] {
        own.ctl(&root.into_iter().chain(command.split(' ')).collect::<Vec<_>>());
    }
    let config = login(&own, "narrow:secret").warn_of_skew(Duration::from_secs(1));
    let backend = EtcdBackend::connect(config).await.unwrap();
    assert!(matches!(backend.skew().await.unwrap_err(), EtcdError::PermissionDenied(_)));
    assert_eq!(consume(&backend).await.unwrap().granted(), 1);
}

#[tokio::test]
async fn logins_that_nobody_takes() {
    let own = Own::start(&[]).await;
    let config = login(&own, "limiter:secret");
    assert_eq!(connect_error(config).await, (ErrorKind::Misconfigured, Effect::NotApplied));
}

#[tokio::test]
async fn o_85_one_login_more_when_the_token_is_gone() {
    let mut own = with_users(&["--auth-token-ttl", "2"]).await;
    let backend = EtcdBackend::connect(login(&own, "limiter:pa%40ss")).await.unwrap();
    consume(&backend).await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    consume(&backend).await.expect("the token has expired");
    backend.reset(policy().name(), "key").await.unwrap();

    own.restart(0);
    until("the restart", Duration::from_secs(20), async || {
        tokio::net::TcpStream::connect(&own.addresses()[0]).await.is_ok()
    })
    .await;
    recovers(&backend, Duration::from_secs(20)).await;

    let root = ["--user", "root:secret"];
    own.ctl(&[&root[..], &["role", "grant-permission", "limiter", "read", "other"]].concat());
    consume(&backend).await.expect("all tokens are old");
    own.ctl(&[&root[..], &["role", "revoke-permission", "limiter", "throttle:", "--prefix"]].concat());
    assert_eq!(refusal(&backend).await, ErrorKind::Unauthorized);
}

#[tokio::test]
async fn a_lease_that_somebody_revoked_is_replaced() {
    let own = Own::start(&[]).await;
    let backend = own.backend().await;
    let mut client = own.client().await;
    for revoked in 0..3 {
        let outcome = consume(&backend).await.unwrap();
        assert_eq!(outcome.granted(), 1, "{revoked}");
        for lease in client.leases().await.unwrap().leases() {
            client.lease_revoke(lease.id()).await.unwrap();
        }
    }
    let policy = policy();
    let batch = ["a", "b", "c"].map(|key| Action::consume(&policy, key));
    assert!(backend.decide_many(&batch).await.into_iter().all(|outcome| outcome.unwrap().granted() == 1));
}

#[tokio::test]
async fn batches_are_cut_to_what_the_server_takes() {
    let own = Own::start(&["--max-txn-ops", "4"]).await;
    let policy = policy();
    let keys: Vec<_> = (0..10).map(|key| key.to_string()).collect();
    let batch: Vec<_> = keys.iter().map(|key| Action::consume(&policy, key)).collect();
    for outcome in own.backend().await.decide_many(&batch).await {
        let error = outcome.unwrap_err();
        assert_eq!(
            (error.kind(), error.effect()),
            (ErrorKind::Misconfigured, Effect::NotApplied),
            "{error:?}"
        );
    }
    let right = EtcdBackend::connect(own.patient().max_txn_ops(4).unwrap()).await.unwrap();
    for _ in 0..2 {
        assert!(right.decide_many(&batch).await.into_iter().all(|outcome| outcome.unwrap().granted() == 1));
    }
}

/// Eight logs of 60,000 entries each: more than one request may hold.
#[tokio::test]
async fn large_states_are_cut_to_what_the_server_takes() {
    let own = Own::start(&[]).await;
    let backend = own.backend().await;
    let policy = Policy::new("log", [Rule::from_str("sliding_window_log 65536/h").unwrap()]).unwrap();
    let start = 1_700_000_000_000_000;
    let mut log = SlidingLogState::new(3_600_000_000);
    (0..60_000).for_each(|nth| log.push(LogEntry { time: start + nth * 1_000, cost: 1 }));
    let state = PolicyState::new(vec![StoredState::SlidingLog(Box::new(log))]).to_bytes();
    let keys: Vec<_> = (0..8).map(|key| key.to_string()).collect();
    let mut client = own.client().await;
    for key in &keys {
        client.put(storage_key("throttle", policy.name(), key), state.clone(), None).await.unwrap();
    }
    let now = Some(Timestamp::saturating_from_micros(start + 61_000_000));
    for left in [5_536, 5_535] {
        let batch: Vec<_> = keys.iter().map(|key| Action::consume(&policy, key).at(now)).collect();
        for (action, outcome) in batch.iter().zip(backend.decide_many(&batch).await) {
            assert_eq!(Decision::of(action, &outcome.unwrap(), 0).remaining(), left - 1);
        }
    }
}

#[tokio::test]
async fn o_87_compaction_disturbs_nobody() {
    let own = Own::start(&[]).await;
    let backend = own.backend().await;
    for _ in 0..5 {
        assert_eq!(consume(&backend).await.unwrap().granted(), 1);
        let mut client = own.client().await;
        let revision = client.get("key", None).await.unwrap().header().unwrap().revision();
        // The second time there is nothing left to compact, which is not this test's business.
        let _ = client.compact(revision, None).await;
    }
}

#[tokio::test]
async fn foreign_values_are_corrupt_and_left_alone() {
    let own = Own::start(&[]).await;
    let backend = own.backend().await;
    let name = storage_key("throttle", policy().name(), "foreign");
    let mut client = own.client().await;
    client.put(&*name, "42", None).await.unwrap();
    let policy = policy();
    let actions = ["good", "foreign"].map(|key| Action::consume(&policy, key));
    let outcomes = backend.decide_many(&actions).await;
    assert_eq!(outcomes[0].as_ref().unwrap().granted(), 1);
    let error = outcomes[1].as_ref().unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Corrupt, Effect::NotApplied));
    assert_eq!(client.get(&*name, None).await.unwrap().kvs()[0].value(), b"42");
}

#[tokio::test]
async fn tls_with_certificates_of_ones_own() {
    let dir = format!("{}/etcd-tls-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    std::fs::create_dir_all(&dir).unwrap();
    let script = "cd $0 && exec 2>/dev/null && K='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes' \
        && openssl req -x509 $K -subj /CN=ca -days 30 -keyout ca.key -out ca.pem \
        && for n in server client; do openssl req -new $K -subj /CN=$n -keyout $n.key -out $n.csr \
        && printf 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\nbasicConstraints=CA:FALSE' > ext \
        && openssl x509 -req -in $n.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile ext -out $n.pem; done";
    let file = |name: &str| format!("{dir}/{name}");
    assert!(Command::new("sh").args(["-c", script, &dir]).status().unwrap().success());
    let (certificate, key, authority) = (file("server.pem"), file("server.key"), file("ca.pem"));
    let settings = ["--client-cert-auth", "--cert-file", &certificate, "--key-file", &key];
    let own = Own::spawn(1, &[&settings[..], &["--trusted-ca-file", &authority]].concat());
    let config = || EtcdConfig::new(&own.url().replace("etcd://", "etcds://")).unwrap();
    let read = |name: &str| std::fs::read(file(name)).unwrap();
    let trusting = || Tls::new().authorities(&read("ca.pem")).unwrap();
    let known = || trusting().identity(&read("client.pem"), &read("client.key")).unwrap();
    let mut backend = None;
    until("the start of etcd", Duration::from_secs(30), async || {
        backend = EtcdBackend::connect(config().tls(known()).unwrap()).await.ok();
        backend.is_some()
    })
    .await;
    recovers(&backend.unwrap(), Duration::from_secs(10)).await;
    for tls in [Tls::new(), trusting()] {
        let error = connect_error(config().tls(tls).unwrap()).await;
        // A certificate that is missed is missed after the handshake, again and again until the deadline.
        assert!(matches!(error.0, ErrorKind::Connection | ErrorKind::Timeout), "{error:?}");
    }
    let broken =
        Tls::new().authorities(b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----").unwrap();
    let error = EtcdBackend::connect(config().tls(broken).unwrap()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Setup(_) | ConnectError::Unavailable(_)), "{error:?}");
    let _ = std::fs::remove_dir_all(&dir);
}
