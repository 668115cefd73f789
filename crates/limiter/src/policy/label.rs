//! The names of a quota, and the values that are computed from them once.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::{Block, Policy};
use crate::attachments::Attachments;
use crate::tracked_sketch::TrackedSketch;
use crate::{Quota, Scope};

/// A quota's names, rule and scope, as verdicts and receipts tell them.
///
/// It belongs to a policy and lives as long as there is a reference to it, so that replaced policies leave nothing behind.
pub struct Label {
    policy: Box<str>,
    quota: Box<str>,
    rule: Quota,
    scope: Scope,
    /// The answer to the callers that it keeps out, if it is a ban.
    ban: Option<Block>,
    class: Option<ClassLabel>,
    /// The counters of its decisions. They stand here because each decision looks them up.
    #[cfg(feature = "metrics")]
    tally: Attachments,
    /// The sketch of the callers that its policy denies most, in the first limiter that had one for it.
    sketch: OnceLock<Arc<TrackedSketch>>,
    attached: Attachments,
}

/// The place of a class among its policy's; 0 is the most important, and the only one of a policy without classes.
pub(crate) type Rank = u8;

/// The place of the quotas that hold for a class in a tier. Half a word, which every request that waits keeps.
pub(crate) type Seat = u32;

/// The class that a quota is for.
struct ClassLabel {
    /// `None` for the requests of no class.
    name: Option<Arc<str>>,
    rank: Rank,
    /// The policy's quota, of which a share may be kept from this class.
    whole: Quota,
}

impl Label {
    pub(super) fn new(policy: &str, scope: Scope, quota: &str, rule: &Quota) -> Arc<Self> {
        Arc::new(Self {
            policy: policy.into(),
            quota: quota.into(),
            rule: *rule,
            scope,
            ban: None,
            class: None,
            #[cfg(feature = "metrics")]
            tally: Attachments::default(),
            sketch: OnceLock::new(),
            attached: Attachments::default(),
        })
    }

    /// The names of the same quota as a class sees it.
    pub(super) fn of_class(&self, name: Option<Arc<str>>, rank: Rank, rule: &Quota) -> Arc<Self> {
        Arc::new(Self {
            policy: self.policy.clone(),
            quota: self.quota.clone(),
            rule: *rule,
            scope: self.scope,
            ban: self.ban,
            class: Some(ClassLabel {
                name,
                rank,
                whole: self.rule,
            }),
            #[cfg(feature = "metrics")]
            tally: Attachments::default(),
            sketch: OnceLock::new(),
            attached: Attachments::default(),
        })
    }

    /// The label of a ban, which answers the callers that it keeps out like this.
    pub(super) fn of_ban(
        policy: &str,
        scope: Scope,
        name: &str,
        rule: &Quota,
        answer: Block,
    ) -> Arc<Self> {
        Arc::new(Self {
            policy: policy.into(),
            quota: name.into(),
            rule: *rule,
            scope,
            ban: Some(answer),
            class: None,
            #[cfg(feature = "metrics")]
            tally: Attachments::default(),
            sketch: OnceLock::new(),
            attached: Attachments::default(),
        })
    }

    /// The answer to the callers that it keeps out, if it is a ban.
    pub fn ban(&self) -> Option<Block> {
        self.ban
    }

    /// The policy's name.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// The quota's name in headers: the policy's for its first, and unique within a limiter.
    pub fn quota(&self) -> &str {
        &self.quota
    }

    /// The quota as the policy states it, whatever is kept from the class that this is for.
    pub fn whole(&self) -> &Quota {
        self.class.as_ref().map_or(&self.rule, |class| &class.whole)
    }

    /// The class that it is for; nothing for a policy without classes, and for the requests of no class.
    pub fn class(&self) -> Option<&str> {
        self.class.as_ref()?.name.as_deref()
    }

    /// The place of that class among its policy's, the most important of which is 0.
    pub(crate) fn rank(&self) -> Rank {
        self.class.as_ref().map_or(0, |class| class.rank)
    }

    /// The quota that is charged.
    pub fn rule(&self) -> &Quota {
        &self.rule
    }

    /// The scope of its states.
    pub(crate) fn scope(&self) -> Scope {
        self.scope
    }

    /// The values of the counters of decisions.
    #[cfg(feature = "metrics")]
    #[inline]
    pub(crate) fn tally(&self) -> &Attachments {
        &self.tally
    }

    /// The sketch that was kept for its policy. It may be of another limiter: clones of a policy share their labels.
    #[inline]
    pub(crate) fn sketch(&self) -> Option<&TrackedSketch> {
        self.sketch.get().map(|sketch| &**sketch)
    }

    /// Keeps the sketch of its policy, unless one is kept.
    pub(crate) fn keep_sketch(&self, sketch: Arc<TrackedSketch>) {
        self.sketch.get_or_init(|| sketch);
    }

    /// The rendered parts of answers.
    pub fn attached(&self) -> &Attachments {
        &self.attached
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Label")
            .field("policy", &self.policy)
            .field("quota", &self.quota)
            .field("rule", &self.rule)
            .finish_non_exhaustive()
    }
}

impl Policy {
    /// The label of the quota whose states are in this scope; `None` for one of an answer, and for an id.
    pub(crate) fn label_of(&self, scope: Scope) -> Option<&Label> {
        let tiers = self.tiers.iter().flat_map(|tiers| tiers.limits());
        let mut limits = self.limits.iter().chain(tiers.map(|(_, limit)| limit));
        limits
            .find(|limit| limit.scope == scope)
            .map(|limit| &*limit.label)
    }
}
