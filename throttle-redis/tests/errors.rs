//! Every way in which a server fails, provoked on one.

#![expect(clippy::panic, clippy::unwrap_used, reason = "test helpers fail by panicking")]

mod common;

use std::time::{Duration, Instant};

use common::own::{Own, free_port};
use throttle_core::{
    Action, BaseErrorSet, ConnectError, Effect, ErrorKind, GroupCommit, Outcome, Policy, Rule, SetupError,
    StoreBackend, storage_key,
};
use throttle_redis::{RedisBackend, RedisConfig, RedisError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn policy() -> Policy {
    Policy::new("p", [Rule::gcra("100/s").unwrap()]).unwrap()
}

async fn consume(backend: &RedisBackend) -> Result<Outcome, RedisError> {
    backend.decide(&Action::consume(&policy(), "key")).await
}

/// The kind of the error of one call, which certainly changed nothing.
async fn refusal(backend: &RedisBackend) -> ErrorKind {
    let error = consume(backend).await.unwrap_err();
    assert_eq!(error.effect(), Effect::NotApplied, "{error:?}");
    error.kind()
}

async fn connect_error(config: RedisConfig) -> (ErrorKind, Effect) {
    match RedisBackend::connect(config).await.unwrap_err() {
        ConnectError::Unavailable(error) => (error.kind(), error.effect()),
        error => panic!("{error:?}"),
    }
}

/// Calls until one succeeds, which it does within `patience`.
async fn recovers(backend: &RedisBackend, patience: Duration) {
    let since = Instant::now();
    while let Err(error) = consume(backend).await {
        assert!(
            error.kind().is_transient() && since.elapsed() < patience,
            "{:?}: {error:?}",
            since.elapsed()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn refused() {
    let mut server = Own::start(&[]).await;
    let config = server.config();
    server.kill();
    assert_eq!(connect_error(config).await, (ErrorKind::Connection, Effect::NotApplied));
    let nowhere = RedisConfig::new("unix:///nowhere/redis.sock").unwrap();
    assert_eq!(connect_error(nowhere).await, (ErrorKind::Connection, Effect::NotApplied));
}

#[tokio::test]
async fn lost_and_back() {
    let mut server = Own::start(&[]).await;
    let backend = server.backend().await;
    consume(&backend).await.unwrap();
    server.kill();
    assert_eq!(consume(&backend).await.unwrap_err().kind(), ErrorKind::Connection);
    let since = Instant::now();
    for _ in 0..50 {
        assert_eq!(refusal(&backend).await, ErrorKind::Connection);
    }
    assert!(
        since.elapsed() < Duration::from_secs(1),
        "a dead server costs no deadline each: {:?}",
        since.elapsed()
    );
    server.restart(&[]);
    recovers(&backend, Duration::from_secs(5)).await;
}

#[tokio::test]
async fn lost_with_a_call_under_way() {
    let mut server = Own::start(&[]).await;
    let backend = server.backend().await;
    let _: () = server.ask("CLIENT PAUSE 60000 ALL").await;
    let call = tokio::spawn({
        let backend = backend.clone();
        async move { consume(&backend).await.unwrap_err() }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.kill();
    let error = call.await.unwrap();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Connection, Effect::Unknown));
}

#[tokio::test]
async fn an_idle_connection_that_the_server_closed_costs_nobody_an_error() {
    let server = Own::start(&[]).await;
    let backend = server.backend().await;
    for _ in 0..5 {
        consume(&backend).await.unwrap();
        let _: i64 = server.ask("CLIENT KILL TYPE normal").await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        // A connection that has just been made may be paused for.
        recovers(&backend, Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn o_71_a_stalled_server_costs_the_deadline_and_no_more() {
    let server = Own::start(&[]).await;
    let deadline = Duration::from_millis(100);
    let backend = RedisBackend::connect(server.config().response_deadline(deadline).unwrap()).await.unwrap();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let _: () = server.ask("CLIENT PAUSE 3000 ALL").await;
    let stalled = Instant::now();
    while stalled.elapsed() < Duration::from_secs(2) {
        let calls = (0..50).map(|_| async {
            let since = Instant::now();
            let error = consume(&backend).await.unwrap_err();
            (error.kind(), since.elapsed())
        });
        for (kind, took) in futures_util::future::join_all(calls).await {
            assert!(matches!(kind, ErrorKind::Timeout | ErrorKind::Connection), "{kind:?}");
            assert!(took < deadline * 3, "{took:?}");
        }
        assert!(tasks() <= before + 2, "{} tasks, {before} before", tasks());
    }
    recovers(&backend, Duration::from_secs(5)).await;
}

/// More callers than go into one batch, each on a key of its own: who waits for the next batch does not pay twice.
#[tokio::test]
async fn o_71_a_thousand_callers_in_groups_pay_the_deadline_of_a_stalled_server_once() {
    let server = Own::start(&[]).await;
    let deadline = Duration::from_millis(500);
    let config = server.config().response_deadline(deadline).unwrap();
    let groups = GroupCommit::new(RedisBackend::connect(config).await.unwrap());
    let policy = policy();
    let keys: Vec<_> = (0..1_000).map(|nth| format!("key-{nth}")).collect();
    let _: () = server.ask("CLIENT PAUSE 4000 ALL").await;
    let calls = keys.iter().map(async |key| groups.decide(&Action::consume(&policy, key)).await.unwrap_err());
    let since = Instant::now();
    let errors = futures_util::future::join_all(calls).await;
    assert!(since.elapsed() < deadline * 2, "{:?}", since.elapsed());
    assert!(errors.iter().all(|error| error.kind() == ErrorKind::Timeout), "{errors:?}");
    recovers(groups.get_ref(), Duration::from_secs(10)).await;
    groups.decide(&Action::consume(&policy, "key-0")).await.unwrap();
}

#[tokio::test]
async fn o_72_loading() {
    let mut server = Own::start(&["--save", "3600 1"]).await;
    let _: () = server.ask("DEBUG POPULATE 3000").await;
    let _: () = server.ask("SAVE").await;
    server.restart(&["--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024"]);
    let since = Instant::now();
    loop {
        match connect_error(server.config()).await {
            (ErrorKind::Connection, _) if since.elapsed() < Duration::from_secs(3) => {}
            error => {
                assert_eq!(error, (ErrorKind::NotReady, Effect::NotApplied));
                break;
            }
        }
    }
}

#[tokio::test]
async fn o_72_busy() {
    let server = Own::start(&["--busy-reply-threshold", "20"]).await;
    let backend = server.backend().await;
    let client = redis::Client::open(server.url()).unwrap();
    let endless = tokio::spawn(async move {
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        redis::cmd("EVAL").arg("while true do end").arg(0).exec_async(&mut connection).await
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(refusal(&backend).await, ErrorKind::Overloaded);
    let mut kill =
        redis::Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    redis::cmd("SCRIPT").arg("KILL").exec_async(&mut kill).await.unwrap();
    endless.await.unwrap().unwrap_err();
    recovers(&backend, Duration::from_secs(2)).await;
}

#[tokio::test]
async fn o_72_out_of_memory() {
    let server = Own::start(&[]).await;
    let backend = server.backend().await;
    let _: () = server.ask("CONFIG SET maxmemory 1").await;
    assert_eq!(refusal(&backend).await, ErrorKind::StorageFull);
    backend.decide(&Action::peek(&policy(), "key")).await.unwrap();
    let _: () = server.ask("CONFIG SET maxmemory 0").await;
    consume(&backend).await.unwrap();
}

#[tokio::test]
async fn o_72_cannot_save() {
    let server = Own::start(&["--save", "3600 1"]).await;
    let backend = server.backend().await;
    consume(&backend).await.unwrap();
    std::fs::remove_dir_all(server.dir()).unwrap();
    let _: String = server.ask("BGSAVE").await;
    let since = Instant::now();
    while consume(&backend).await.is_ok() {
        assert!(since.elapsed() < Duration::from_secs(10), "BGSAVE does not fail");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(refusal(&backend).await, ErrorKind::StorageFull);
}

#[tokio::test]
async fn o_70_a_demoted_node_is_left_at_once() {
    let server = Own::start(&[]).await;
    let backend = server.backend().await;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let clients = async || server.ask::<String>("CLIENT LIST TYPE normal").await;
    let id = clients().await.split(' ').next().unwrap().to_owned();
    let _: () = server.ask(&format!("REPLICAOF 127.0.0.1 {}", free_port())).await;
    assert_eq!(refusal(&backend).await, ErrorKind::ReadOnly);
    let _: () = server.ask("REPLICAOF NO ONE").await;
    consume(&backend).await.unwrap();
    assert!(!clients().await.contains(&format!("{id} ")), "the connection to the demoted node is gone");
}

#[tokio::test]
async fn o_72_primary_down() {
    let server = Own::start(&["--replica-serve-stale-data", "no"]).await;
    let backend = server.backend().await;
    let _: () = server.ask(&format!("REPLICAOF 127.0.0.1 {}", free_port())).await;
    assert_eq!(refusal(&backend).await, ErrorKind::NotReady);
}

#[tokio::test]
async fn o_72_cluster_down_and_keys_of_several_slots() {
    let server = Own::start(&["--cluster-enabled", "yes"]).await;
    assert_eq!(connect_error(server.config()).await, (ErrorKind::NotReady, Effect::NotApplied));
    let _: () = server.ask("CLUSTER ADDSLOTSRANGE 0 16383").await;
    let since = Instant::now();
    let backend = loop {
        match RedisBackend::connect(server.config()).await {
            Ok(backend) => break backend,
            Err(error) => assert!(since.elapsed() < Duration::from_secs(10), "{error:?}"),
        }
    };
    let policy = policy();
    let actions = ["a", "b"].map(|key| Action::consume(&policy, key));
    for outcome in backend.decide_many(&actions).await {
        assert_eq!(
            outcome.unwrap_err().kind(),
            ErrorKind::Bug,
            "redis:// says that all keys are on one node"
        );
    }
}

#[tokio::test]
async fn o_72_users() {
    let server = Own::start(&[]).await;
    let _: () = server.ask("ACL SETUSER right on >secret ~* +@all").await;
    let _: () = server.ask("ACL SETUSER no-scripts on >secret ~* +@all -@scripting").await;
    let _: () = server.ask("ACL SETUSER no-keys on >secret ~other:* +@all").await;
    let config =
        |login: &str| RedisConfig::new(&format!("redis://{login}@127.0.0.1:{}", server.port)).unwrap();
    let right = RedisBackend::connect(config("right:secret")).await.unwrap();
    consume(&right).await.unwrap();
    for login in ["right:wrong", "no-scripts:secret", "no-keys:secret"] {
        assert_eq!(
            connect_error(config(login)).await,
            (ErrorKind::Unauthorized, Effect::NotApplied),
            "{login}"
        );
    }
    let _: () = server.ask("ACL SETUSER right -@scripting").await;
    assert_eq!(refusal(&right).await, ErrorKind::Unauthorized);
    let _: () = server.ask("ACL SETUSER default -@all +acl +auth +hello +client").await;
    let nobody = server.config();
    assert_eq!(connect_error(nobody).await.0, ErrorKind::Unauthorized);
}

#[tokio::test]
async fn foreign_values_are_corrupt_and_left_alone() {
    let server = Own::start(&[]).await;
    let backend = server.backend().await;
    let (policy, name) = (policy(), |key| storage_key("throttle", policy().name(), key));
    let _: i64 = server.ask(&format!("RPUSH {} x", name("list"))).await;
    let _: () = server.ask(&format!("SET {} 42", name("text"))).await;
    let actions = ["list", "good", "text"].map(|key| Action::consume(&policy, key));
    let outcomes = backend.decide_many(&actions).await;
    let kinds: Vec<_> =
        outcomes.iter().map(|outcome| outcome.as_ref().err().map(BaseErrorSet::kind)).collect();
    assert_eq!(kinds, [Some(ErrorKind::Corrupt), None, Some(ErrorKind::Corrupt)]);
    for action in &actions[..1] {
        let error = backend.decide(action).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Corrupt, Effect::NotApplied));
    }
    assert_eq!(server.ask::<i64>(&format!("LLEN {}", name("list"))).await, 1);
    assert_eq!(server.ask::<String>(&format!("GET {}", name("text"))).await, "42");
}

#[tokio::test]
async fn o_73_servers_without_scripts_are_refused_and_without_script_load_are_not() {
    let server = Own::start(&["--rename-command", "SCRIPT", "", "--rename-command", "HELLO", ""]).await;
    consume(&server.backend().await).await.unwrap();
    let server = Own::start(&["--rename-command", "EVAL", "", "--rename-command", "EVALSHA", ""]).await;
    let error = RedisBackend::connect(server.config()).await.unwrap_err();
    assert!(
        matches!(error, ConnectError::Setup(SetupError::Unsupported { backend: "redis", .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_server_too_old_is_refused() {
    let server = Own::start(&[]).await;
    let info = server.ask::<String>("INFO server").await;
    let version =
        info.lines().find_map(|line| line.get(..15).filter(|line| line.starts_with("redis_version:")));
    let port = replacing(server.port, version.unwrap().to_owned(), "redis_version:5".to_owned()).await;
    let config = RedisConfig::new(&format!("redis://127.0.0.1:{port}")).unwrap();
    match RedisBackend::connect(config).await.unwrap_err() {
        ConnectError::Setup(SetupError::Unsupported { backend: "redis", reason }) => {
            assert!(reason.contains("not 5"), "{reason}");
        }
        error => panic!("{error:?}"),
    }
}

/// A port on which the server on `port` answers, with one text of its replies replaced by another of the same length.
async fn replacing(port: u16, text: String, other: String) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let ((mut asks, mut hears), (mut replies, mut asked)) =
                (client.into_split(), server.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut asks, &mut asked).await });
            let (text, other) = (text.clone(), other.clone());
            tokio::spawn(async move {
                let mut buffer = vec![0; 65_536];
                while let Ok(length @ 1..) = replies.read(&mut buffer).await {
                    let reply = buffer.get_mut(..length).unwrap();
                    if let Some(at) = reply.windows(text.len()).position(|part| part == text.as_bytes()) {
                        reply
                            .get_mut(at..)
                            .unwrap()
                            .get_mut(..text.len())
                            .unwrap()
                            .copy_from_slice(other.as_bytes());
                    }
                    if hears.write_all(reply).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    own
}
