//! The present master, as the Sentinels tell it.
//!
//! A master that is replaced on purpose keeps its address, and takes writes for some ten seconds more. So the backend listens
//! to each Sentinel, and also asks it each second. Once one of them names another master, connections to the old one are closed
//! at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ProtocolVersion, PushInfo, RedisError, Value,
    from_redis_value,
};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tollgate_core::{BackendError, FailureKind};

use crate::connection::{connect, jittered, send, within};
use crate::error::refusal;
use crate::server::{self, Address, Credentials};

/// The interval at which a silent Sentinel is asked. A user that may not subscribe hears of a new master at most this late.
const EVERY: Duration = Duration::from_secs(1);

/// The channel on which a Sentinel names a new master.
const NEWS: &str = "+switch-master";

/// The Sentinels of one master.
#[derive(Debug)]
pub(crate) struct Sentinels {
    pub(crate) master_name: String,
    pub(crate) sentinels: Vec<ConnectionInfo>,
    pub(crate) credentials: Credentials,
    /// The time for one Sentinel: less than for all of them, so that a silent one does not keep us from the others.
    pub(crate) patience: Duration,
    /// The one that reported a new master last, and so knows best.
    pub(crate) freshest: AtomicUsize,
}

/// A part of the backend that must hear of a new master.
pub(crate) trait Listener: Clone + Send + Sync + 'static {
    /// Says whether it still exists.
    fn is_there(&self) -> bool;

    /// Notes that another server is the master.
    fn is_replaced_by(&self, master: &Address);
}

impl Sentinels {
    /// Asks one after the other, until one knows the master. The server itself is asked elsewhere if it agrees.
    pub(crate) async fn master(&self) -> Result<ConnectionInfo, BackendError> {
        let mut why = None;
        let freshest = self.freshest.load(Ordering::Relaxed);
        let (before, from) = self.sentinels.split_at(freshest.min(self.sentinels.len()));
        for sentinel in from.iter().chain(before) {
            match self.named_by(sentinel).await {
                Ok(address) => return Ok(self.server(sentinel, address)),
                Err(error) => why = Some(error),
            }
        }
        Err(why.unwrap_or_else(|| BackendError::new(FailureKind::Unreachable, "no Sentinel")))
    }

    /// The master that each of them names.
    pub(crate) async fn each(&self) -> Vec<(ConnectionInfo, Result<Address, BackendError>)> {
        let mut all = Vec::new();
        for sentinel in &self.sentinels {
            all.push((sentinel.clone(), self.named_by(sentinel).await));
        }
        all
    }

    /// The master that one of them names, in its share of the time.
    async fn named_by(&self, sentinel: &ConnectionInfo) -> Result<Address, BackendError> {
        let asked = async {
            let mut connection = connect(sentinel.clone()).await?;
            self.ask(&mut connection).await
        };
        within(self.patience, asked).await
    }

    /// Listens to all of them, in one task each, for as long as there is a listener.
    pub(crate) fn listening<L: Listener>(
        self: &Arc<Self>,
        listener: &L,
    ) -> impl Iterator<Item = impl Future<Output = ()> + Send + 'static> {
        (0..self.sentinels.len()).map(|number| listen(Arc::clone(self), number, listener.clone()))
    }

    async fn ask(&self, connection: &mut MultiplexedConnection) -> Result<Address, BackendError> {
        let question = redis::cmd("SENTINEL")
            .arg("GET-MASTER-ADDR-BY-NAME")
            .arg(&self.master_name)
            .to_owned();
        let wrong = |what| BackendError::new(FailureKind::WrongServer, what);
        let answer = send(connection, &question).await;
        match answer {
            Ok(Value::Nil) => Err(wrong("the Sentinels watch no master of this name")),
            Ok(value) => from_redis_value(value)
                .map_err(|_other| wrong("the server is not a Sentinel that names a master")),
            Err(error)
                if error
                    .detail()
                    .is_some_and(|why| why.starts_with("unknown command")) =>
            {
                Err(wrong(
                    "the server is not a Sentinel: set it up with RedisBackend::connect",
                ))
            }
            Err(error) => Err(refusal("SENTINEL GET-MASTER-ADDR-BY-NAME", &error)),
        }
    }

    /// The settings of the Sentinels' connections serve for the master as well, except the user, the password and the database.
    fn server(&self, sentinel: &ConnectionInfo, address: Address) -> ConnectionInfo {
        let plain = redis::RedisConnectionInfo::default().set_skip_set_lib_name();
        let server = server::at(sentinel, address).set_redis_settings(plain);
        server::with_credentials(server, &self.credentials)
    }
}

/// Listens to one Sentinel, and has connections to the old master closed when it names another one.
async fn listen(sentinels: Arc<Sentinels>, number: usize, listener: impl Listener) {
    let Some(sentinel) = sentinels.sentinels.get(number) else {
        return;
    };
    // Kept from one connection to the next. The first answer of a Sentinel is not news: it may be the one that is behind.
    let mut known = None;
    loop {
        let news = Arc::new(Notify::new());
        if let Ok(mut connection) = within(sentinels.patience, subscribe(sentinel, &news)).await {
            while let Ok(address) = within(sentinels.patience, sentinels.ask(&mut connection)).await
            {
                if !listener.is_there() {
                    return;
                }
                if known.as_ref().is_some_and(|known| *known != address) {
                    sentinels.freshest.store(number, Ordering::Relaxed);
                    listener.is_replaced_by(&address);
                }
                known = Some(address);
                let _quiet = timeout(EVERY, news.notified()).await;
            }
        }
        if !listener.is_there() {
            return;
        }
        sleep(jittered(EVERY)).await;
    }
}

/// Connects to a Sentinel; `news` then tells that it has something to say. One that does not let us subscribe is only asked.
async fn subscribe(
    sentinel: &ConnectionInfo,
    news: &Arc<Notify>,
) -> Result<MultiplexedConnection, BackendError> {
    let settings = sentinel.redis_settings().clone();
    let settings = settings.set_protocol(ProtocolVersion::RESP3);
    let told = Arc::clone(news);
    let config = AsyncConnectionConfig::new().set_push_sender(move |_news: PushInfo| {
        told.notify_one();
        Ok::<(), RedisError>(())
    });
    let sentinel = sentinel.clone().set_redis_settings(settings);
    let config = config
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let made = async {
        let client = Client::open(sentinel)?;
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
    };
    let mut connection = made.await.map_err(|error| refusal("HELLO", &error))?;
    let _allowed = connection.subscribe(NEWS).await;
    Ok(connection)
}
