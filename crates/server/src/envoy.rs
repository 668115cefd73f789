//! Envoy's rate limit service: a request of descriptors becomes one decision of the limiter, and the decision an answer.

mod answer;
mod asked;

use std::sync::Arc;
use std::time::Duration;

use tollgate::CheckError;
use tonic::{Request, Response, Status};

use self::answer::Writer;
use self::asked::Asked;
use crate::counts::Tally;
use crate::live::Live;
use crate::proto::rate_limit_response::Code;
use crate::proto::rate_limit_service_server::RateLimitService;
use crate::proto::{RateLimitRequest, RateLimitResponse};

/// The service, for as many connections as there are.
#[derive(Clone, Debug)]
pub(crate) struct EnvoyService {
    live: Arc<Live>,
    writer: Arc<Writer>,
}

/// The time between two attempts at a decision while a new configuration takes effect: its policies, and microseconds later its
/// rules. On a busy machine the thread that replaces them may be interrupted in between.
const PAUSE: Duration = Duration::from_millis(1);

/// The most attempts: no gateway waits longer for an answer.
const ATTEMPTS: usize = 1_000;

impl EnvoyService {
    pub(crate) fn new(live: Arc<Live>) -> Self {
        Self {
            live,
            writer: Arc::default(),
        }
    }

    async fn decide(&self, request: &RateLimitRequest) -> Result<RateLimitResponse, Status> {
        let mut attempt = 1;
        loop {
            match self.try_decide(request).await {
                // A key of the policies that hold by now, read by the rules from before.
                Err(CheckError::UnknownPolicy { .. } | CheckError::WrongKey { .. })
                    if attempt < ATTEMPTS =>
                {
                    attempt += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(
                    error @ (CheckError::TooManyCharges { .. }
                    | CheckError::TooManyLogEntries { .. }),
                ) => {
                    return Ok(self.refuse_overfull(&error.to_string()));
                }
                Err(error) => return Err(self.failure(&error)),
                Ok(answer) => return answer,
            }
        }
    }

    /// A decision, unless the check has no answer.
    async fn try_decide(
        &self,
        request: &RateLimitRequest,
    ) -> Result<Result<RateLimitResponse, Status>, CheckError> {
        let (limiter, counts) = (&self.live.limiter, &self.live.counts);
        let gateways = self.live.gateways.load_full();
        let asked = Asked::of(request, &gateways.rules, limiter);
        let asked = asked.and_then(|asked| Ok((asked.checks(limiter)?, asked)));
        let (checks, asked) = match asked {
            Ok(asked) => asked,
            Err(reason) => {
                counts.add(Tally::Invalid);
                return Ok(Err(Status::invalid_argument(reason)));
            }
        };
        if asked.is_overfull {
            return Ok(Ok(
                self.refuse_overfull("the request charges more than 32 budgets")
            ));
        }
        let outcome = limiter.check_all(checks).await?;
        asked.debit(limiter, &outcome, counts);
        asked.count(request, &outcome, counts);
        Ok(Ok(self.writer.write(&asked, &outcome)))
    }

    /// Refuses a request that charges more than can be decided together. Callers choose fields, and so which descriptors there are:
    /// after an error Envoy may let the request pass.
    fn refuse_overfull(&self, reason: &str) -> RateLimitResponse {
        if self.live.counts.add(Tally::Invalid) {
            tracing::warn!(
                reason,
                "a request is refused that charges too much at a time"
            );
        }
        RateLimitResponse {
            overall_code: Code::OverLimit.into(),
            ..RateLimitResponse::default()
        }
    }

    /// The answer to a request that has no decision.
    fn failure(&self, error: &CheckError) -> Status {
        match error {
            CheckError::Unavailable(_) | CheckError::TierUnknown { .. } => {
                self.live.counts.add(Tally::Undecided);
                Status::unavailable(error.to_string())
            }
            // The configuration is being replaced.
            CheckError::UnknownPolicy { .. } => {
                self.live.counts.add(Tally::Undecided);
                Status::unavailable("the rules and the policies are being replaced")
            }
            _ => {
                self.live.counts.add(Tally::Invalid);
                Status::invalid_argument(error.to_string())
            }
        }
    }
}

#[tonic::async_trait]
impl RateLimitService for EnvoyService {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        self.decide(request.get_ref()).await.map(Response::new)
    }
}
