//! A gateway with an admin, and what it is asked.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use serde_json::Value;
use tokio::net::TcpListener;
use tollgate::{Key, LimiterBuilder};
use tollgate_server::{Admin, AdminToken, Gateway};

use crate::common::File;
use crate::common::http::{Answer, post, send};

pub(crate) const TOKEN: &str = "a-token-of-the-operators";

pub(crate) const POLICIES: &str = r#"
[[policies]]
name = "login"
quotas = "2/h"
on_demand = true
ban = { after = "20 in 10min for 15min" }

[[policies]]
name = "pages"
quotas = ["3/h", "100/day"]
on_demand = true

[[policies]]
name = "keys"
quotas = "1/h"
key = { header = "x-api-key" }

[[policies]]
name = "visits"
quotas = "100/h"

[[envoy]]
domain = "shop"
descriptor = [{ key = "remote_address" }]
policy = "login"
"#;

/// A gateway with an admin.
pub(crate) struct Steered {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) admin: SocketAddr,
    pub(crate) file: File,
}

impl Steered {
    pub(crate) async fn start() -> Self {
        Self::with(|builder| builder).await
    }

    pub(crate) async fn with(finish: impl FnOnce(LimiterBuilder) -> LimiterBuilder) -> Self {
        let file = File::toml(POLICIES);
        let admin = Admin::new(AdminToken::new(TOKEN).unwrap());
        let gateway = Gateway::start(file.path(), None, |builder| finish(admin.watch(builder)));
        let gateway = Arc::new(gateway.unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Arc::clone(&gateway);
        tokio::spawn(async move {
            let never = std::future::pending();
            serving.serve_admin(listener, &admin, never).await
        });
        Self {
            gateway,
            admin: address,
            file,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        let token = format!("authorization: Bearer {TOKEN}\r\n");
        send(self.admin, &format!("GET {path}"), &token).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        let token = format!("authorization: Bearer {TOKEN}\r\n");
        post(self.admin, path, &token, &body.to_string()).await
    }

    /// The answer to a request that works.
    pub(crate) async fn told(&self, path: &str) -> Value {
        read(&self.get(path).await)
    }

    pub(crate) async fn done(&self, path: &str, body: &Value) -> Value {
        read(&self.post(path, body).await)
    }

    /// True if a request of this caller passes.
    pub(crate) async fn passes(&self, policy: &str, key: impl Into<Key>) -> bool {
        let checked = self.gateway.limiter().check(policy, key).await;
        checked.unwrap().is_allowed()
    }
}

/// The caller with this address.
pub(crate) fn address(last: u8) -> Key {
    Key::from(Ipv4Addr::new(192, 0, 2, last))
}

pub(crate) fn read(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.field("cache-control"), ["no-store"]);
    serde_json::from_str(&answer.body).unwrap()
}

/// The status and the reason of an answer to what has none.
pub(crate) fn fault(answer: &Answer) -> (u16, String) {
    assert_eq!(answer.field("cache-control"), ["no-store"], "{answer:?}");
    assert_eq!(answer.field("content-type"), ["application/json"]);
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    (answer.status, body["error"].as_str().unwrap().to_owned())
}
