//! How requests reach etcd: one member at a time, and the next one when it does not answer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::Client;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use throttle_core::{BaseErrorSet, Effect, SeenThrough};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::EtcdError;
use crate::config::EtcdConfig;
use crate::error::classify;

/// How long is waited, at least and at most, when no member could do it: long enough for an election to get on.
const PAUSE_MILLIS: std::ops::RangeInclusive<u64> = 10..=40;

/// The members of a cluster. All requests go to one of them, for as long as it answers.
pub(crate) struct Connection {
    members: Vec<Member>,
    /// The place of the present one, counted on and on.
    present: AtomicUsize,
    config: EtcdConfig,
}

struct Member {
    address: String,
    /// Made when it is first needed: a login takes the server's time.
    client: OnceCell<Client>,
}

/// What may be done with a request whose fate is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It changes nothing, or the same once as twice: it is sent to another member.
    Freely,
    /// Nothing.
    Never,
}

impl Connection {
    pub(crate) fn new(config: EtcdConfig) -> Arc<Self> {
        let member = |address: &String| Member { address: address.clone(), client: OnceCell::new() };
        let members = config.members.iter().map(member).collect();
        Arc::new(Self { members, present: AtomicUsize::new(0), config })
    }

    /// Sends a request, and waits for the answer until the response deadline. When a member cannot have taken it, or the
    /// request may be repeated, it goes to the next one.
    ///
    /// Connecting to a member for the first time has the connect deadline on top, also while others do it. Dropped, the request may be carried
    /// out or not.
    pub(crate) async fn send<F, T>(
        self: &Arc<Self>,
        repeat: Repeat,
        request: impl Fn(Client) -> F,
    ) -> Result<T, EtcdError>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        self.send_within(self.config.settings.response_deadline, repeat, request).await
    }

    pub(crate) async fn send_within<F, T>(
        self: &Arc<Self>,
        deadline: Duration,
        repeat: Repeat,
        request: impl Fn(Client) -> F,
    ) -> Result<T, EtcdError>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let deadline = Instant::now() + deadline;
        let mut tries = 0;
        loop {
            let place = self.present.load(Ordering::Relaxed);
            let error = match self.ask(place, deadline, &request).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if !error.speaks_for_one_member() {
                return Err(error);
            }
            self.leave(place);
            tries += 1;
            let may_repeat = repeat == Repeat::Freely || error.effect() == Effect::NotApplied;
            if !may_repeat || !self.wait(tries, deadline).await {
                return Err(error);
            }
        }
    }

    /// From here on asks the leader, if one of several members says within the response deadline that it leads: the
    /// others would pass each request on to it.
    pub(crate) async fn prefer_leader(&self) {
        let members = self.members.len();
        let present = self.present.load(Ordering::Relaxed);
        if members < 2 {
            return;
        }
        let mut asked: FuturesUnordered<_> =
            (0..members).map(|more| self.leads(present.wrapping_add(more))).collect();
        let leader = async {
            while let Some(leader) = asked.next().await {
                if leader.is_some() {
                    return leader;
                }
            }
            None
        };
        if let Ok(Some(place)) = timeout(self.config.settings.response_deadline, leader).await {
            self.present.store(place, Ordering::Relaxed);
        }
    }

    /// The same place, if the member there says that it is the leader.
    async fn leads(&self, place: usize) -> Option<usize> {
        let member = self.member(place)?;
        let client = member.client.get_or_try_init(|| self.log_in(member)).await.ok()?;
        let status = client.maintenance_client().status().await.ok()?;
        status.header().is_some_and(|header| header.member_id() == status.leader()).then_some(place)
    }

    async fn ask<F, T>(
        self: &Arc<Self>,
        place: usize,
        deadline: Instant,
        request: impl Fn(Client) -> F,
    ) -> Result<T, EtcdError>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let before = Instant::now();
        let client = self.client(place).await?;
        let deadline = deadline + before.elapsed();
        match timeout_at(deadline, request(client.clone())).await {
            Err(_) => Err(EtcdError::NoAnswerInTime),
            Ok(Err(error)) => match classify(error) {
                // A change of users or roles makes all tokens old, which the driver does not know.
                EtcdError::Unauthenticated(_) => self.ask_anew(client, deadline, request).await,
                error => Err(error),
            },
            Ok(Ok(answer)) => Ok(answer),
        }
    }

    /// Once more, after another login. Who is not authenticated has changed nothing.
    async fn ask_anew<F, T>(
        &self,
        client: &Client,
        deadline: Instant,
        request: impl Fn(Client) -> F,
    ) -> Result<T, EtcdError>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let connect_deadline = self.config.settings.connect_deadline;
        match timeout(connect_deadline, client.refresh_token()).await {
            Err(_) => return Err(EtcdError::NoConnectionInTime),
            Ok(login) => login.map_err(classify_connect)?,
        }
        match timeout_at(deadline.max(Instant::now() + connect_deadline), request(client.clone())).await {
            Err(_) => Err(EtcdError::NoAnswerInTime),
            Ok(answer) => answer.map_err(classify),
        }
    }

    /// Within the connect deadline, whether this caller connects or waits for another one that does. A connection that was
    /// begun is made, also when nobody waits for it any more.
    async fn client(self: &Arc<Self>, place: usize) -> Result<&Client, EtcdError> {
        let member = self.member(place).ok_or(EtcdError::Answer("there are no members"))?;
        if !member.client.initialized() {
            let this = Arc::clone(self);
            SeenThrough::new(async move { this.connect(place).await }).await?;
        }
        member.client.get().ok_or(EtcdError::NoConnectionInTime)
    }

    async fn connect(&self, place: usize) -> Result<(), EtcdError> {
        let member = self.member(place).ok_or(EtcdError::Answer("there are no members"))?;
        let connect = || async {
            // While this caller waited for its turn, another may have found that the member does not answer.
            if self.present.load(Ordering::Relaxed) != place {
                return Err(EtcdError::NoConnectionInTime);
            }
            self.log_in(member).await
        };
        let client = timeout(self.config.settings.connect_deadline, member.client.get_or_try_init(connect));
        client.await.unwrap_or(Err(EtcdError::NoConnectionInTime)).map(drop)
    }

    fn member(&self, place: usize) -> Option<&Member> {
        place.checked_rem(self.members.len()).and_then(|at| self.members.get(at))
    }

    async fn log_in(&self, member: &Member) -> Result<Client, EtcdError> {
        let client = Client::connect([&member.address], Some(self.config.options())).await;
        client.map_err(classify_connect)
    }

    /// The next member is the present one, unless others have gone on already.
    fn leave(&self, place: usize) {
        let next = place.wrapping_add(1);
        // Whether it was changed by this call does not matter.
        let _ = self.present.compare_exchange(place, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Waits after each round of all members. False if the deadline has passed.
    async fn wait(&self, tries: usize, deadline: Instant) -> bool {
        if tries.is_multiple_of(self.members.len().max(1)) {
            let pause = Duration::from_millis(rand::random_range(PAUSE_MILLIS));
            sleep(pause.min(deadline.saturating_duration_since(Instant::now()))).await;
        }
        Instant::now() < deadline
    }
}

/// Whether the driver takes certificates and key. Asks nobody.
pub(crate) async fn check(config: &EtcdConfig) -> Result<(), etcd_client::Error> {
    let nobody = config.clone().without_login();
    Client::connect(&config.members, Some(nobody.options())).await.map(drop)
}

/// What the driver says of a connection it could not make: nothing was asked yet.
fn classify_connect(error: etcd_client::Error) -> EtcdError {
    match classify(error) {
        EtcdError::Lost(cause) | EtcdError::Unavailable(cause) | EtcdError::TimedOut(cause) => {
            EtcdError::Connect(cause)
        }
        EtcdError::NoAnswerInTime => EtcdError::NoConnectionInTime,
        other => other,
    }
}

/// Addresses; no login.
impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = self.members.iter().map(|member| &member.address);
        f.debug_list().entries(addresses).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use futures_util::future::join_all;

    use super::*;

    const CONNECT: Duration = Duration::from_secs(1);
    const RESPONSE: Duration = Duration::from_millis(500);

    /// Members that take connections and never say anything.
    fn silent(members: usize) -> (Vec<TcpListener>, Arc<Connection>) {
        let listeners: Vec<_> = (0..members).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let hosts: Vec<_> = listeners.iter().map(|one| one.local_addr().unwrap().to_string()).collect();
        let config = EtcdConfig::new(&format!("etcd://user:password@{}", hosts.join(","))).unwrap();
        let config = config.connect_deadline(CONNECT).unwrap().response_deadline(RESPONSE).unwrap();
        (listeners, Connection::new(config))
    }

    #[tokio::test(start_paused = true)]
    async fn callers_that_wait_for_one_login_have_one_deadline_each() {
        for members in [1, 3] {
            let (_listeners, connection) = silent(members);
            let request = |client: Client| async move { client.kv_client().get("key", None).await };
            let callers = (0..20_u32).map(async |nth| {
                sleep(RESPONSE / 20 * nth).await;
                let since = Instant::now();
                let error = connection.send(Repeat::Freely, request).await.unwrap_err();
                (error, since.elapsed())
            });
            for (error, took) in join_all(callers).await {
                assert!(matches!(error, EtcdError::NoConnectionInTime), "{error:?}");
                let most = RESPONSE + CONNECT + Duration::from_millis(10);
                assert!(took <= most, "{took:?} with {members} members");
            }
        }
    }

    /// A login takes longer than these callers have: one that the first began is there for the others.
    #[tokio::test]
    async fn a_login_outlives_its_caller() {
        let (listeners, connection) = silent(1);
        let request = |client: Client| async move { client.kv_client().get("key", None).await };
        for _ in 0..5 {
            let asked = timeout(CONNECT / 20, connection.send(Repeat::Freely, request));
            asked.await.unwrap_err();
        }
        let listener = listeners.first().unwrap();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(std::iter::from_fn(|| listener.accept().ok()).count(), 1);
    }
}
