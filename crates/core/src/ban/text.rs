//! Bans as people write them: `"5 in 10min for 1h"`.

use std::fmt;
use std::str::FromStr;

use super::Ban;
use crate::ParseQuotaError;
use crate::algorithm::{Onset, Penalty};
use crate::quota::text::{Period, period};
use crate::words::{Words, number, syntax, words_of};

const FORM: &str = "STRIKES in PERIOD, such as 5 in 10min";

/// Nouns for strikes, which mean nothing.
const NOUNS: [&str; 4] = ["strike", "strikes", "denial", "denials"];

impl FromStr for Ban {
    type Err = ParseQuotaError;

    fn from_str(text: &str) -> Result<Self, ParseQuotaError> {
        let words = words_of(text).ok_or_else(|| syntax(text, FORM))?;
        let mut words = Words::new(&words);
        words.skip("after");
        let strikes = number(words.next(), FORM)?.unwrap_or(u64::MAX);
        words.skip_one_of(&NOUNS);
        if !words.skip_one_of(&["in", "within"]) {
            return Err(syntax(words.next(), "in and a period"));
        }
        let mut ban = Self::try_after(strikes, period(&mut words)?)?;
        if words.skip("for") {
            ban = ban.try_lasting(period(&mut words)?)?;
        }
        if words.skip("doubling") {
            let _ = words.skip_all(&["up", "to"]) || words.skip("to");
            ban = ban.try_doubling_to(period(&mut words)?)?;
        }
        if words.skip("forgiven") {
            words.skip("after");
            ban = ban.try_forgiven_after(period(&mut words)?)?;
        }
        if words.skip("extending") {
            ban = ban.extending();
        }
        match words.next() {
            "" => ban.check().map(|()| ban).map_err(ParseQuotaError::from),
            more => Err(syntax(
                more,
                "for, doubling to, forgiven after, extending or the end, in this order",
            )),
        }
    }
}

/// The form that [`FromStr`] reads back to an equal ban.
impl fmt::Display for Ban {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Penalty { strikes, onset, .. } = *self.penalty();
        let (_, _, [within_us, lasting_us, longest_us, forgiven_us]) = self.figures();
        if onset == Onset::Imposed {
            return write!(f, "at once for {}", Period(lasting_us));
        }
        write!(
            f,
            "{strikes} in {} for {}",
            Period(within_us),
            Period(lasting_us)
        )?;
        // Without its doubling a time after which it is forgiven would not be read back.
        if longest_us > lasting_us || forgiven_us != longest_us {
            write!(f, " doubling to {}", Period(longest_us))?;
        }
        if forgiven_us != longest_us {
            write!(f, " forgiven after {}", Period(forgiven_us))?;
        }
        if onset == Onset::Extended {
            f.write_str(" extending")?;
        }
        Ok(())
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Ban {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Ban {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl serde::de::Visitor<'_> for Text {
            type Value = Ban;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a ban, such as \"5 in 10min for 1h\"")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Ban, E> {
                text.parse()
                    .map_err(|error| E::custom(format_args!("ban {text:?}: {error}")))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn bans_are_written_as_they_are_read() {
        let five = Ban::after(5, 10 * MINUTE);
        let cases = [
            ("5 in 10min", five),
            ("after 5 strikes within 10 minutes", five),
            ("5 denials in 10min for 1h", five.lasting(60 * MINUTE)),
            (
                "5 in 10min for 15min doubling up to 1day",
                five.lasting(15 * MINUTE).doubling_to(1440 * MINUTE),
            ),
            (
                "5 in 10min for 15min doubling to 2h forgiven after 1day extending",
                five.lasting(15 * MINUTE)
                    .doubling_to(120 * MINUTE)
                    .forgiven_after(1440 * MINUTE)
                    .extending(),
            ),
        ];
        for (text, ban) in cases {
            assert_eq!(text.parse(), Ok(ban), "{text}");
            assert_eq!(ban.to_string().parse(), Ok(ban), "{text}");
        }
        assert_eq!(five.to_string(), "5 in 10min for 10min");
        // The words behind a doubling are read back, also if the longest ban is the first.
        let level = five.doubling_to(10 * MINUTE).forgiven_after(MINUTE);
        let text = "5 in 10min for 10min doubling to 10min forgiven after min";
        assert_eq!(
            (level.to_string().as_str(), text.parse()),
            (text, Ok(level))
        );
    }

    #[test]
    fn a_ban_that_means_nothing_is_refused_with_a_sentence() {
        let cases = [
            (
                "",
                "expected STRIKES in PERIOD, such as 5 in 10min, found the end",
            ),
            ("five in 10min", "expected STRIKES in PERIOD"),
            ("0 in 10min", "a ban after 0 strikes: a ban counts 1 to 64"),
            (
                "65 in 10min",
                "a ban after 65 strikes: a ban counts 1 to 64",
            ),
            ("5 per 10min", "expected in and a period, found \"per\""),
            ("5 in 0s", "a period of 0"),
            ("5 in 400day", "longer than 366 days"),
            ("5 in 10min for", "expected a period"),
            ("5 in 10min for 0s", "a period of 0"),
            (
                "5 in 10min for 1h doubling to 1min",
                "a ban that lasts 3600s at first cannot double up to 60s",
            ),
            (
                "5 in 10min forgiven after 1day",
                "`forgiven after` needs `doubling to`: a ban that never doubles has no doubling to forgive",
            ),
            (
                "5 in 10min for 1h forgiven after 1h extending",
                "`forgiven after` needs `doubling to`",
            ),
            ("5 in 10min extending for 1h", "found \"for\""),
            ("5 in 10min for 1h for 2h", "found \"for\""),
        ];
        for (text, expected) in cases {
            let error = text.parse::<Ban>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
