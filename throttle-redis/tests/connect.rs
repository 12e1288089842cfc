//! The ways to a server that URLs and clients name.

#![expect(clippy::unwrap_used, reason = "test helpers fail by panicking")]

mod common;

use common::own::Own;
use throttle_core::{Action, ConnectError, ErrorKind, Policy, Rule, StoreBackend, storage_key};
use throttle_redis::{RedisBackend, RedisConfig};

fn policy() -> Policy {
    Policy::new("p", [Rule::gcra("10/h").unwrap()]).unwrap()
}

#[tokio::test]
async fn through_a_socket_into_a_database() {
    let mut server = Own::start(&[]).await;
    let socket = server.dir().join("socket");
    server.restart(&["--unixsocket", socket.to_str().unwrap()]);
    let url = format!("unix://{}?db=3", socket.display());
    let mut connected = RedisBackend::connect(RedisConfig::new(&url).unwrap()).await;
    while connected.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        connected = RedisBackend::connect(RedisConfig::new(&url).unwrap()).await;
    }
    let policy = policy();
    connected.unwrap().decide(&Action::consume(&policy, "key")).await.unwrap();
    let keyspace: String = server.ask("INFO keyspace").await;
    assert!(keyspace.contains("db3:keys=1,expires=1"), "{keyspace}");
    let numbered = RedisConfig::new(&format!("{}/3", server.url())).unwrap();
    let backend = RedisBackend::connect(numbered).await.unwrap();
    assert!(backend.reset(policy.name(), "key").await.unwrap());
}

#[tokio::test]
async fn with_a_client_of_the_drivers() {
    let server = Own::start(&[]).await;
    let client = redis::Client::open(server.url()).unwrap();
    let config = RedisConfig::new("redis://not.asked").unwrap().prefix("mine").unwrap();
    let backend = RedisBackend::from_client(client, &config).await.unwrap();
    let policy = policy();
    backend.decide(&Action::consume(&policy, "key")).await.unwrap();
    let name = storage_key("mine", policy.name(), "key");
    assert_eq!(server.ask::<i64>(&format!("EXISTS {name}")).await, 1);
    backend.ping().await.unwrap();
}

#[tokio::test]
async fn certificates_are_checked() {
    let url = common::server("THROTTLE_TEST_REDIS_TLS_URL");
    let mozilla = RedisConfig::new(&url).unwrap();
    match RedisBackend::connect(mozilla).await.unwrap_err() {
        ConnectError::Unavailable(error) => assert_eq!(error.kind(), ErrorKind::Connection),
        error => panic!("{error:?}"),
    }
    common::backend("THROTTLE_TEST_REDIS_TLS_URL", "tls").await.ping().await.unwrap();
}

#[tokio::test]
async fn no_secret_is_in_what_is_printed() {
    let server = Own::start(&[]).await;
    let _: () = server.ask("ACL SETUSER limiter on >geheim ~* +@all").await;
    let url = |password| format!("redis://limiter:{password}@127.0.0.1:{}", server.port);
    let backend = RedisBackend::connect(RedisConfig::new(&url("geheim")).unwrap()).await.unwrap();
    let error = RedisBackend::connect(RedisConfig::new(&url("falsch")).unwrap()).await.unwrap_err();
    let printed = format!("{backend:?} {error:?} {error}");
    assert!(!printed.contains("geheim") && !printed.contains("falsch"), "{printed}");
}
