//! Who is the master at present, by those who watch it.

use std::time::Duration;

use redis::{ConnectionInfo, Value, from_redis_value};
use tollgate_core::{BackendError, FailureKind};

use crate::error::refusal;
use crate::link::{connect, send, within};
use crate::server::{self, Address, Credentials};

/// The Sentinels of one master.
#[derive(Debug)]
pub(crate) struct Sentinels {
    pub(crate) master_name: String,
    pub(crate) sentinels: Vec<ConnectionInfo>,
    pub(crate) credentials: Credentials,
    /// How long one of them may take: less than all may, so that a silent one does not keep us from the others.
    pub(crate) patience: Duration,
}

impl Sentinels {
    /// Asks one after the other, until one knows. Whether the server then says the same of itself is asked there.
    pub(crate) async fn master(&self) -> Result<ConnectionInfo, BackendError> {
        let mut why = None;
        for sentinel in &self.sentinels {
            match within(self.patience, self.ask(sentinel)).await {
                Ok(address) => return Ok(self.server(sentinel, address)),
                Err(error) => why = Some(error),
            }
        }
        Err(why.unwrap_or_else(|| BackendError::new(FailureKind::Unreachable, "no Sentinel")))
    }

    async fn ask(&self, sentinel: &ConnectionInfo) -> Result<Address, BackendError> {
        let mut connection = connect(sentinel.clone()).await?;
        let question = redis::cmd("SENTINEL")
            .arg("GET-MASTER-ADDR-BY-NAME")
            .arg(&self.master_name)
            .to_owned();
        let wrong = |what| BackendError::new(FailureKind::WrongServer, what);
        let answer = send(&mut connection, &question).await;
        match answer {
            Ok(Value::Nil) => Err(wrong("the Sentinels watch no master of this name")),
            Ok(value) => from_redis_value(value)
                .map_err(|_other| wrong("what answers is no Sentinel that names a master")),
            Err(error)
                if error
                    .detail()
                    .is_some_and(|why| why.starts_with("unknown command")) =>
            {
                Err(wrong(
                    "the server is no Sentinel: set it up with RedisBackend::connect",
                ))
            }
            Err(error) => Err(refusal("SENTINEL GET-MASTER-ADDR-BY-NAME", &error)),
        }
    }

    /// The master is spoken to as its Sentinels are, but for who we are and which database it is.
    fn server(&self, sentinel: &ConnectionInfo, address: Address) -> ConnectionInfo {
        let plain = redis::RedisConnectionInfo::default().set_skip_set_lib_name();
        let server = server::at(sentinel, address).set_redis_settings(plain);
        server::with_credentials(server, &self.credentials)
    }
}
