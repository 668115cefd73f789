//! A body whose messages are charged.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, SizeHint};
use pin_project_lite::pin_project;
use tollgate_http::{BodyWatch, ResponseBody};

use super::body_item::BodyItem;
pub(super) use super::body_item::BoxError;
use super::received_body::ReceivedBody;
use super::sent_body::SentBody;

pin_project! {
    /// The body of a request or response under a [`MessageLimitLayer`](super::MessageLimitLayer). The bodies of other requests,
    /// and of calls whose messages are not charged, are unchanged.
    ///
    /// A service within a `MessageLimitLayer` has this type of bodies, which axum's routers and tonic's services take:
    ///
    /// ```
    /// use axum::{Router, routing::post};
    /// use bytes::Bytes;
    /// use http::Request;
    /// use http_body_util::Full;
    /// use tollgate::MessageBody;
    /// use tower::Service;
    ///
    /// fn assert_takes<S: Service<Request<MessageBody<Full<Bytes>>>>>(_: S) {}
    ///
    /// assert_takes(Router::<()>::new().route("/", post(|| async {})));
    /// ```
    pub struct MessageBody<B> {
        #[pin]
        body: B,
        charged: ChargedBody,
    }
}

#[derive(Debug)]
enum ChargedBody {
    Not,
    Received(Box<ReceivedBody>),
    Sent(Box<SentBody>),
}

impl<B> MessageBody<B> {
    pub(super) fn plain(body: B) -> Self {
        Self {
            body,
            charged: ChargedBody::Not,
        }
    }

    pub(super) fn received(body: B, received: ReceivedBody) -> Self {
        Self {
            body,
            charged: ChargedBody::Received(Box::new(received)),
        }
    }

    pub(super) fn sent(body: B, sent: SentBody) -> Self {
        Self {
            body,
            charged: ChargedBody::Sent(Box::new(sent)),
        }
    }
}

impl<B> Body for MessageBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<BodyItem> {
        let this = self.project();
        match this.charged {
            ChargedBody::Not => {
                let frame = this.body.poll_frame(cx);
                frame.map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            ChargedBody::Received(received) => received.poll_frame(this.body, cx),
            ChargedBody::Sent(sent) => sent.poll_frame(this.body, cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.charged {
            ChargedBody::Not => self.body.is_end_stream(),
            ChargedBody::Received(received) => received.is_end_stream(&self.body),
            ChargedBody::Sent(sent) => sent.is_end_stream(&self.body),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.charged {
            ChargedBody::Not => self.body.size_hint(),
            ChargedBody::Received(received) => received.size_hint(&self.body),
            // It may end early.
            ChargedBody::Sent(_) => SizeHint::default(),
        }
    }
}

impl<B> ResponseBody for MessageBody<B>
where
    B: ResponseBody + Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    fn from_bytes(bytes: Bytes) -> Self {
        Self::plain(B::from_bytes(bytes))
    }

    fn watched(self, watch: BodyWatch) -> Self {
        Self {
            body: self.body.watched(watch),
            charged: self.charged,
        }
    }
}

impl<B> fmt::Debug for MessageBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageBody")
            .field("charged", &self.charged)
            .finish_non_exhaustive()
    }
}
