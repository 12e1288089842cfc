//! [`EtcdBackend`]: decisions by compare-and-swap, many in one transaction.

use std::sync::Arc;

use futures_util::future::join_all;
use throttle_core::{
    Action, CasError, ConnectError, Outcome, PolicyName, Results, SetupError, StoreBackend,
    StoreUnavailableError,
};

use crate::config::EtcdConfig;
use crate::lanes::{Lane, Lanes};
use crate::skew::{self, Skew};
use crate::store::EtcdStore;
use crate::{EtcdError, connection};

const NAME: &str = "etcd";

/// etcd as a store of decisions. Cheap to clone; all clones share connections, memory and leases.
///
/// Requests that come while others are under way are merged, so no [`GroupCommit`](throttle_core::GroupCommit) need be
/// put in front. Time is the client's, unless an action brings its own: keep the clocks of all processes together. A
/// dropped call is decided or not, and leaves nothing behind.
///
/// # Panics
///
/// Every operation panics outside a tokio runtime with its timer and I/O enabled.
///
/// ```no_run
/// use throttle_core::{Policy, RateLimiter, Rule};
/// use throttle_etcd::{EtcdBackend, EtcdConfig};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let etcd = EtcdBackend::connect(EtcdConfig::new("etcd://e1,e2,e3")?).await?;
/// let limiter = RateLimiter::new(Policy::new("api", [Rule::gcra("100/s")?])?, etcd);
/// assert!(limiter.check("alice").await?.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct EtcdBackend {
    store: Arc<EtcdStore>,
    lanes: Arc<Lanes>,
}

impl EtcdBackend {
    /// Connects, and waits for the first answer of a member. The leader is asked from then on if it is among the members
    /// named: waiting for them to say so takes up to the response deadline more.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Unavailable`] if no member answered within the connect deadline, or none lets this user in;
    /// [`ConnectError::Setup`] if the certificates are not usable.
    pub async fn connect(config: EtcdConfig) -> Result<Self, ConnectError> {
        let settings = config.settings.clone();
        connection::check(&config)
            .await
            .map_err(|error| SetupError::Setting { setting: "tls", reason: error.to_string() })?;
        let store = Arc::new(EtcdStore::new(config));
        let connected = store.connect(settings.connect_deadline).await;
        connected.map_err(|error| StoreUnavailableError::on_connect(NAME, error))?;
        if let Some(tolerance) = settings.skew_tolerance {
            skew::warn(&store, tolerance).await;
        }
        Ok(Self { lanes: Arc::new(Lanes::new(&store, &settings)?), store })
    }

    pub(crate) fn store(&self) -> &EtcdStore {
        &self.store
    }

    /// How far the clocks of other processes are from this one's: the largest difference that is certain, among the
    /// processes which [announced theirs](EtcdConfig::warn_of_skew) within the last hour; none if there are none.
    ///
    /// Differences below a second are not seen, for the server tells the age of a lease in whole seconds. Clocks that
    /// were announced before the last election are not compared.
    ///
    /// # Errors
    ///
    /// An [`EtcdError`], if the cluster could not be asked.
    pub async fn skew(&self) -> Result<Option<Skew>, EtcdError> {
        skew::measure(&self.store).await
    }
}

impl StoreBackend for EtcdBackend {
    type BaseError = CasError<EtcdError>;

    fn name(&self) -> &'static str {
        NAME
    }

    async fn decide(&self, action: &Action<'_>) -> Result<Outcome, Self::BaseError> {
        self.lanes.of(action).decide(action).await
    }

    /// Keys in conflict with others apart from the rest, at the same time.
    async fn decide_many(&self, actions: &[Action<'_>]) -> Results<Outcome, Self::BaseError> {
        let lanes = self.lanes.of_each(actions);
        let mut used: Vec<&Lane> = Vec::new();
        for lane in &lanes {
            if !used.iter().any(|seen| std::ptr::eq(*seen, *lane)) {
                used.push(lane);
            }
        }
        if let [lane] = used.as_slice() {
            return lane.decide_many(actions).await;
        }
        let groups = used.into_iter().map(async |lane| {
            let mine = lanes.iter().zip(actions).enumerate();
            let mine = mine.filter(|(_, (of, _))| std::ptr::eq(**of, lane));
            let (places, actions): (Vec<_>, Vec<_>) =
                mine.map(|(place, (_, action))| (place, *action)).unzip();
            places.into_iter().zip(lane.decide_many(&actions).await).collect::<Vec<_>>()
        });
        let mut outcomes: Vec<_> = join_all(groups).await.into_iter().flatten().collect();
        outcomes.sort_unstable_by_key(|(place, _)| *place);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    async fn reset(&self, policy: &PolicyName, key: &str) -> Result<bool, Self::BaseError> {
        self.lanes.calm().reset(policy, key).await
    }

    async fn reset_policy(&self, policy: &PolicyName) -> Result<u64, Self::BaseError> {
        self.lanes.calm().reset_policy(policy).await
    }

    async fn ping(&self) -> Result<(), Self::BaseError> {
        self.lanes.calm().ping().await
    }
}
