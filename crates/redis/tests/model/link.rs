//! The model's part of the backend's `link`.

use std::sync::Arc;
use std::time::Duration;

use redis::ConnectionInfo;
use tollgate_core::BackendError;

use super::connection::{Connection, Ended, info, number, within};
use super::error::failure;
use super::hello::Kind;
use super::script::{Composed, Script};
use super::world::{WORLD, port};
use crate::server::{self, Address};

#[derive(Clone, Debug)]
pub(crate) enum Origin {
    Server(Arc<ConnectionInfo>),
    #[expect(dead_code, reason = "the model has no Sentinels")]
    Master,
}

#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) origin: Origin,
    pub(crate) kind: Kind,
    pub(crate) client_name: Arc<str>,
    pub(crate) script: Arc<Script>,
    pub(crate) composed: Arc<Composed>,
    pub(crate) deadline: Duration,
}

impl Link {
    pub(crate) fn to(server: usize) -> Self {
        Self {
            origin: Origin::Server(Arc::new(info(server))),
            kind: Kind,
            client_name: "model".into(),
            script: Arc::default(),
            composed: Arc::default(),
            deadline: Duration::from_millis(500),
        }
    }

    pub(crate) fn address(&self) -> Option<Address> {
        match &self.origin {
            Origin::Server(info) => server::address(info),
            Origin::Master => None,
        }
    }

    pub(crate) async fn open(&self) -> Result<Handshake, BackendError> {
        let server = self.address().map_or(0, |(_, port)| number(port));
        let greeted = async {
            let greeted = WORLD.attention(server).await;
            greeted.map_err(|error| failure(&error))
        };
        within(self.deadline, greeted).await?;
        Ok(Handshake::to(server))
    }
}

#[derive(Debug)]
pub(crate) struct Handshake {
    pub(crate) connection: Connection,
    pub(crate) ended: Ended,
    pub(crate) round_trip: Duration,
    pub(crate) server: Option<Address>,
}

impl Handshake {
    pub(crate) fn to(server: usize) -> Self {
        Self {
            connection: Connection::to(server),
            ended: Ended,
            round_trip: Duration::ZERO,
            server: Some(("127.0.0.1".to_owned(), port(server))),
        }
    }
}
