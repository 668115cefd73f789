//! The admin: what the limiter does at this moment, and the changes that an operator makes, on an address of its own.
//!
//! Without the token a request is answered 401, whatever it asks for. The page alone needs none: it is the same for all
//! servers, and has no data until the operator has typed the token.

mod answer;
mod asked;
mod changes;
mod looks;
mod page;
mod refusals;
mod shared;
mod state;
mod token;
mod watch;

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, Request};
use axum::response::Response;
use http::{Method, StatusCode};
use tollgate::{Event, LimiterBuilder};

use self::answer::{ApiError, secured};
use self::asked::{Asked, Body};
use self::shared::Shared;
use crate::listener::Asker;
use crate::live::Live;

pub use self::token::{AdminToken, AdminTokenError};

/// The needs of an operator who looks at a gateway and steers it: the token, and the record of decisions that the page shows.
///
/// ```no_run
/// use tokio::net::TcpListener;
/// use tollgate_server::{Admin, AdminToken, Gateway};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let admin = Admin::new(AdminToken::new(&std::env::var("ADMIN_TOKEN")?)?);
/// // It records decisions from here on. A gateway without an admin records none.
/// let gateway = Gateway::start("gateway.toml", None, |builder| admin.watch(builder))?;
/// let listener = TcpListener::bind("127.0.0.1:8083").await?;
/// gateway.serve_admin(listener, &admin, std::future::pending()).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Admin(Arc<Shared>);

impl Admin {
    /// An admin for operators who have this token.
    #[must_use]
    pub fn new(token: AdminToken) -> Self {
        Self(Arc::new(Shared::new(token)))
    }

    /// Has a limiter tell of its decisions, and track the callers that it refuses most. It sets the limiter's
    /// [observer](LimiterBuilder::observe).
    ///
    /// ```
    /// use tollgate_server::{Admin, Gateway};
    ///
    /// fn start(admin: &Admin) -> Result<Gateway, tollgate::config::ReloadError> {
    ///     Gateway::start("gateway.toml", None, |builder| admin.watch(builder))
    /// }
    /// ```
    pub fn watch(&self, builder: LimiterBuilder) -> LimiterBuilder {
        let admin = Arc::clone(&self.0);
        builder
            .track_offenders()
            .observe(move |event: &Event<'_>| admin.watch.observe(event))
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}

pub(crate) fn router(live: Arc<Live>, admin: &Admin) -> Router {
    let admin = Arc::clone(&admin.0);
    Router::new().fallback(async move |request: Request| {
        let answer = answer(&live, &admin, request).await;
        secured(answer.unwrap_or_else(ApiError::into_answer))
    })
}

async fn answer(live: &Live, admin: &Shared, request: Request) -> Result<Response, ApiError> {
    let (head, body) = request.into_parts();
    let from = head.extensions.get::<ConnectInfo<Asker>>();
    let from = from.map(|ConnectInfo(Asker(peer))| *peer);
    let is_look = head.method == Method::GET || head.method == Method::HEAD;
    if let (true, Some(page)) = (is_look, page::of(head.uri.path())) {
        return Ok(page);
    }
    if !admin.is_authorized(&head.headers) {
        admin.refusals.tell(from);
        return Err(ApiError::unauthorized());
    }
    let path = head.uri.path();
    let query = head.uri.query().unwrap_or_default();
    let known = |method: Method| match head.method == method || is_look && method == Method::GET {
        true => Ok(()),
        false => Err(ApiError::method(&method)),
    };
    let asked = Asked { live, admin, from };
    match path {
        "/api/state" => known(Method::GET).map(|()| asked.state()),
        "/api/offenders" => known(Method::GET).and_then(|()| asked.offenders(query)),
        "/api/bans" => {
            known(Method::GET)?;
            asked.bans(query).await
        }
        // A proxy may write queries into its log, and no bodies.
        "/api/caller" if head.method == Method::POST => {
            asked.caller_in(&Body::read(body).await?).await
        }
        "/api/caller" => {
            known(Method::GET)?;
            asked.caller_of(query).await
        }
        "/api/switch" => {
            known(Method::POST)?;
            asked.switch(&Body::read(body).await?)
        }
        "/api/reset" | "/api/ban" | "/api/unban" => {
            known(Method::POST)?;
            let body = Body::read(body).await?;
            asked.change(path.trim_start_matches("/api/"), &body).await
        }
        _ if page::of(path).is_some() => Err(ApiError::method(&Method::GET)),
        _ => Err(ApiError::new(
            StatusCode::NOT_FOUND,
            "there is nothing at this path",
        )),
    }
}
