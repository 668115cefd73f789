//! Making a connection.

use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionInfo, Pipeline, Value};
use tokio::time::Instant;
use tollgate_core::BackendError;

use crate::connection::{Connection, Ended, connect_for_long, send, within};
use crate::error::refusal;
use crate::hello::{self, Kind};
use crate::rights;
use crate::script::{Composed, Script};
use crate::sentinel::Sentinels;
use crate::server::{self, Address};
use crate::tls::Tls;

/// The server to connect to.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// A fixed server.
    Server(Arc<ConnectionInfo>),
    /// The master that the Sentinels name at the time.
    Master(Arc<Sentinels>),
}

/// The result of a handshake: the connection, and the facts learned by it.
#[derive(Debug)]
pub(crate) struct Handshake {
    pub(crate) connection: Connection,
    pub(crate) ended: Ended,
    /// The duration of the last question.
    pub(crate) round_trip: Duration,
    /// The server that it leads to, unless that is not a host.
    pub(crate) server: Option<Address>,
}

/// The settings of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) origin: Origin,
    /// The required kind of server.
    pub(crate) kind: Kind,
    /// Hosts that may be passwords: see [`server::only_word`].
    pub(crate) hidden: Arc<[String]>,
    pub(crate) client_name: Arc<str>,
    /// The beginning of the names of our keys.
    pub(crate) prefix: Arc<str>,
    /// The script that decides any call.
    pub(crate) script: Arc<Script>,
    pub(crate) composed: Arc<Composed>,
    pub(crate) tls: Tls,
    pub(crate) deadline: Duration,
}

impl Link {
    /// Connects, and checks that the server is of the required kind, has our script and runs it.
    pub(crate) async fn open(&self) -> Result<Handshake, BackendError> {
        let opened = within(self.deadline, self.handshake()).await;
        match (opened, &self.origin) {
            (Err(error), Origin::Server(server)) => Err(self.about(error, server)),
            (opened, _) => opened,
        }
    }

    async fn handshake(&self) -> Result<Handshake, BackendError> {
        let server = match &self.origin {
            Origin::Server(server) => (**server).clone(),
            Origin::Master(sentinels) => sentinels.master().await?,
        };
        let introduced = self.introduce(server.clone()).await;
        introduced.map_err(|error| self.about(error, &server))
    }

    /// The error with the server that it is about.
    pub(crate) fn about(&self, error: BackendError, server: &ConnectionInfo) -> BackendError {
        match server::address(server) {
            Some((host, _)) if self.hidden.contains(&host) => error,
            Some((host, port)) => error.at(format!("{host}:{port}")),
            None => error,
        }
    }

    async fn introduce(&self, server: ConnectionInfo) -> Result<Handshake, BackendError> {
        let at = server::address(&server);
        let (mut connection, ended) = connect_for_long(server, &self.tls).await?;
        let load = |source| redis::cmd("SCRIPT").arg("LOAD").arg(source).to_owned();
        let tried = redis::cmd("EVALSHA")
            .arg(self.script.sha())
            .arg(0)
            .to_owned();
        // In one round trip, because requests wait for it when a connection was lost. The right to load is tried with a text that is
        // shorter than the script, which the server nearly always has.
        let mut asked = Pipeline::new();
        asked.add_command(load("return 0"));
        rights::try_each(&mut asked, &self.prefix);
        asked.add_command(tried.clone());
        let mut sent_at = Instant::now();
        // By itself, so that its error is not hidden by that of the commands behind it.
        let (hello, mut first) = (hello::command(&self.client_name), connection.clone());
        let (greeted, answers) = tokio::join!(
            send(&mut first, &hello),
            connection.send_packed_commands(&asked, 0, asked.len())
        );
        hello::check(greeted, self.kind)?;
        let answers = answers.map_err(|error| refusal("SCRIPT LOAD", &error))?;
        let mut answers = answers.into_iter();
        let loads = answers.next().unwrap_or(Value::Nil).extract_error();
        loads.map_err(|error| refusal("SCRIPT LOAD", &error))?;
        let mut ran = answers.next_back().unwrap_or(Value::Nil).extract_error();
        rights::check(answers)?;
        if matches!(&ran, Err(error) if error.code() == Some("NOSCRIPT")) {
            let loaded = send(&mut connection, &load(self.script.source())).await;
            loaded.map_err(|error| refusal("SCRIPT LOAD", &error))?;
            sent_at = Instant::now();
            ran = send(&mut connection, &tried).await;
        }
        ran.map_err(|error| refusal("EVALSHA", &error))?;
        Ok(Handshake {
            connection,
            ended,
            round_trip: sent_at.elapsed(),
            server: at,
        })
    }
}
