//! A process with a deliberate defect in its own share, line, ids or bans. It shows that the whole chain from clients to checker
//! would notice.

use serde::{Deserialize, Serialize};

/// The defect of a process while the backend fails, or afterwards, while its requests wait, or in its ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Flaw {
    /// It lets through a whole budget, and not its share.
    WholeShare,
    /// Its share is full again in each outage.
    FreshShare,
    /// The charges of its share are charged to the budget as well, once that answers again.
    ChargedAgain,
    /// Its requests do not wait for their turn.
    PassesEarly,
    /// Its requests wait for longer than their callers stated.
    StatesNoWait,
    /// All of its requests spend the share that is kept for the important ones.
    SpendsKept,
    /// None of the requests that its service refuses is a strike.
    StrikesForNothing,
    /// Its operator bans for half of the time that it says.
    BansForHalf,
    /// Its operator pardons no caller, and says so of one.
    PardonsNobody,
    /// One more of its requests waits than its line has room for.
    OneMoreWaits,
    /// The last place of its line stays free.
    OneFewerWaits,
    /// Its line stays open when it is closed.
    NeverCloses,
    /// Its requests keep their turns when they leave.
    KeepsTurns,
    /// It takes one id of two callers for one.
    IdsOfAnyCaller,
    /// It takes one id with two costs for one.
    IdsOfAnyCost,
    /// No id of its requests comes again.
    IdsOnce,
    /// It goes on by the quotas that it says it has replaced.
    KeepsQuotas,
    /// Its service settles requests for nothing, and says that they cost something.
    SettlesForNothing,
    /// It gives each leased block back, and spends it all the same.
    SpendsWhatItGaveBack,
    /// The gateway process lets through what its backend refused.
    LetsThrough,
    /// The gateway process does not answer some questions, and Envoy waits for ever.
    NeverAnswers,
}

impl Flaw {
    /// All defects.
    pub const ALL: [Self; 21] = [
        Self::WholeShare,
        Self::FreshShare,
        Self::ChargedAgain,
        Self::PassesEarly,
        Self::StatesNoWait,
        Self::SpendsKept,
        Self::StrikesForNothing,
        Self::BansForHalf,
        Self::PardonsNobody,
        Self::OneMoreWaits,
        Self::OneFewerWaits,
        Self::NeverCloses,
        Self::KeepsTurns,
        Self::IdsOfAnyCaller,
        Self::IdsOfAnyCost,
        Self::IdsOnce,
        Self::KeepsQuotas,
        Self::SettlesForNothing,
        Self::SpendsWhatItGaveBack,
        Self::LetsThrough,
        Self::NeverAnswers,
    ];

    /// True if it shows while requests wait, in a run without faults.
    #[must_use]
    pub fn is_of_line(self) -> bool {
        matches!(
            self,
            Self::OneMoreWaits | Self::OneFewerWaits | Self::NeverCloses | Self::KeepsTurns
        )
    }

    /// True if it is one of the gateway process.
    #[must_use]
    pub fn is_of_gateway(self) -> bool {
        matches!(self, Self::LetsThrough | Self::NeverAnswers)
    }

    /// True if nothing is wrong with its requests, and they show nothing.
    #[must_use]
    pub fn shows_nothing(self) -> bool {
        self == Self::IdsOnce
    }

    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::WholeShare => "whole-share",
            Self::FreshShare => "fresh-share",
            Self::ChargedAgain => "charged-again",
            Self::PassesEarly => "passes-early",
            Self::StatesNoWait => "states-no-wait",
            Self::SpendsKept => "spends-kept",
            Self::StrikesForNothing => "strikes-for-nothing",
            Self::BansForHalf => "bans-for-half",
            Self::PardonsNobody => "pardons-nobody",
            Self::OneMoreWaits => "one-more-waits",
            Self::OneFewerWaits => "one-fewer-waits",
            Self::NeverCloses => "never-closes",
            Self::KeepsTurns => "keeps-turns",
            Self::IdsOfAnyCaller => "ids-of-any-caller",
            Self::IdsOfAnyCost => "ids-of-any-cost",
            Self::IdsOnce => "ids-once",
            Self::KeepsQuotas => "keeps-quotas",
            Self::SettlesForNothing => "settles-for-nothing",
            Self::SpendsWhatItGaveBack => "spends-what-it-gave-back",
            Self::LetsThrough => "lets-through",
            Self::NeverAnswers => "never-answers",
        }
    }
}
