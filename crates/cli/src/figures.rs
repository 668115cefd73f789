//! Shares, numbers, times and durations as text, in whole numbers.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, Datelike, Timelike};

/// A share, in parts of a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    millionths: u64,
}

impl Share {
    /// True if `part` of `whole` is more than this.
    pub(crate) fn is_exceeded(self, part: u64, whole: u64) -> bool {
        u128::from(part) * 1_000_000 > u128::from(whole) * u128::from(self.millionths)
    }

    /// The largest number that is not more than this of `whole`.
    pub(crate) fn of(self, whole: u64) -> u64 {
        let part = u128::from(whole) * u128::from(self.millionths) / 1_000_000;
        u64::try_from(part).unwrap_or(u64::MAX)
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = || format!("{text:?} is not a share; write it as 0.1% or 5%");
        let number = text.trim().strip_suffix('%').ok_or_else(fault)?.trim();
        let (whole, parts) = number.split_once('.').unwrap_or((number, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || parts.len() > 4 || !is_number(whole) || !is_number(parts) {
            return Err(fault());
        }
        let millionths: u64 = format!("{whole}{parts:0<4}").parse().map_err(|_| fault())?;
        if millionths > 1_000_000 {
            return Err(fault());
        }
        Ok(Self { millionths })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = format!("{:04}", self.millionths % 10_000);
        let parts = parts.trim_end_matches('0');
        let dot = if parts.is_empty() { "" } else { "." };
        write!(f, "{}{dot}{parts} %", self.millionths / 10_000)
    }
}

/// A period such as `5s`, `200ms` or `2min`.
pub(crate) fn read_period(text: &str) -> Result<Duration, String> {
    let fault = || format!("{text:?} is not a period; write it as 500ms, 5s, 15m or 2h");
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..end].parse().map_err(|_| fault())?;
    let unit_us = match text[end..].trim() {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" | "min" => 60_000_000,
        "h" => 3_600_000_000,
        "d" | "day" | "days" => 86_400_000_000,
        _ if number == 0 => 0,
        _ => return Err(fault()),
    };
    number
        .checked_mul(unit_us)
        .map(Duration::from_micros)
        .ok_or_else(fault)
}

/// `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 caller`, `1,234 callers`. A thing's plural ends in `s`, or in `es` behind another one.
pub(crate) fn counted(number: u64, thing: &str) -> String {
    let ending = match thing {
        _ if number == 1 => "",
        thing if thing.ends_with('s') => "es",
        _ => "s",
    };
    format!("{} {thing}{ending}", grouped(number))
}

/// `40 of 50 left`.
pub(crate) fn left(remaining: u64, limit: u64) -> String {
    format!("{} of {} left", grouped(remaining), grouped(limit))
}

/// `12.34 %` of a whole, rounded to the nearest. A share that is not nothing is never shown as nothing, and one that is not all
/// never as all: both are what an operator looks for.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if part == 0 || whole == 0 {
        return "0 %".to_owned();
    }
    let (part, whole) = (u128::from(part), u128::from(whole));
    let hundredths = (part * 10_000 + whole / 2) / whole;
    match hundredths {
        0 => "under 0.01 %".to_owned(),
        10_000 if part == whole => "100 %".to_owned(),
        10_000 if part < whole => "over 99.99 %".to_owned(),
        _ => format!("{}.{:02} %", hundredths / 100, hundredths % 100),
    }
}

/// `2026-11-25 10:31:02`, in UTC.
pub(crate) fn moment(time_us: u64) -> String {
    let time = i64::try_from(time_us)
        .ok()
        .and_then(DateTime::from_timestamp_micros);
    let Some(time) = time else {
        return "?".to_owned();
    };
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
        time.year(),
        time.month(),
        time.day(),
        time.hour(),
        time.minute(),
        time.second()
    )
}

/// A duration with its largest unit that leaves a whole number, or milliseconds.
pub(crate) fn duration(us: u64) -> String {
    for (unit_us, name) in [
        (86_400_000_000, "day"),
        (3_600_000_000, "h"),
        (60_000_000, "min"),
        (1_000_000, "s"),
    ] {
        if us >= unit_us && us.is_multiple_of(unit_us) {
            return format!("{} {name}", us / unit_us);
        }
    }
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{} ms", us / 1_000),
        _ => format!("{}.{:03} s", us / 1_000_000, us / 1_000 % 1_000),
    }
}

/// A duration in at most two units, rounded up: `9 days 4 h`, `2 min 5 s`, `300 ms`.
pub(crate) fn about(time: Duration) -> String {
    let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    const UNITS: [(u64, &str); 5] = [
        (86_400_000_000, "days"),
        (3_600_000_000, "h"),
        (60_000_000, "min"),
        (1_000_000, "s"),
        (1_000, "ms"),
    ];
    let larger = UNITS.iter().zip(&UNITS[1..]);
    for ((unit_us, name), (part_us, part)) in larger {
        let parts = us.div_ceil(*part_us);
        let of_unit = unit_us / part_us;
        if parts >= of_unit {
            let (whole, parts) = (parts / of_unit, parts % of_unit);
            let name = match (*name, whole) {
                ("days", 1) => "day",
                (name, _) => name,
            };
            return match parts {
                0 => format!("{whole} {name}"),
                _ => format!("{whole} {name} {parts} {part}"),
            };
        }
    }
    match us {
        0 => "0 s".to_owned(),
        1..1_000 => format!("{us} us"),
        _ => format!("{} ms", us.div_ceil(1_000)),
    }
}

/// The share in parts of a million, as bars have it. A share that is not nothing is never nothing.
pub(crate) fn millionths(part: u64, whole: u64) -> u64 {
    let share = u128::from(part) * 1_000_000 / u128::from(whole.max(1));
    u64::try_from(share)
        .unwrap_or_default()
        .max(u64::from(part > 0))
}

/// Bars of these heights, of the largest.
pub(crate) fn sparkline(heights: &[u64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = heights.iter().copied().max().unwrap_or_default().max(1);
    let bars = heights.iter().map(|height| {
        let step = u128::from(*height) * 7;
        // Every height above 0 is seen.
        let step = step.div_ceil(most.into());
        BARS[usize::try_from(step).unwrap_or(0).min(7)]
    });
    bars.collect()
}

/// True for a character that a page or a terminal shows as itself. Others move the cursor, colour the text or turn its direction,
/// and callers choose their names themselves.
pub(crate) fn is_shown(character: char) -> bool {
    let turns = matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_break = matches!(character, '\u{2028}' | '\u{2029}');
    let is_none = matches!(character, '\u{fffe}' | '\u{ffff}');
    let is_control = character.is_control() && character != '\t';
    !(is_control || turns || is_break || is_none)
}

/// A text of others for a terminal.
pub(crate) fn shown(text: &str) -> String {
    let shown = text.chars().map(|character| match is_shown(character) {
        true => character,
        false => char::REPLACEMENT_CHARACTER,
    });
    shown.collect()
}

/// Whole milliseconds, rounded up.
pub(crate) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}

/// Rows in columns as wide as they need to be.
pub(crate) fn table<const N: usize>(
    names: [&str; N],
    rows: Vec<[String; N]>,
    lines: &mut Vec<String>,
) {
    let rows = rows.into_iter().map(|row| row.map(|cell| shown(&cell)));
    let rows: Vec<_> = std::iter::once(names.map(str::to_owned))
        .chain(rows)
        .collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or_default()
    };
    for row in &rows {
        let cells = row.iter().enumerate();
        let cells = cells.map(|(column, cell)| format!("{cell:<0$}", width(column)));
        let line = cells.collect::<Vec<_>>().join("  ");
        lines.push(format!("  {}", line.trim_end()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_and_written_exactly() {
        let share: Share = "0.1%".parse().unwrap();
        assert_eq!(share.to_string(), "0.1 %");
        assert!(share.is_exceeded(2, 1_000) && !share.is_exceeded(1, 1_000));
        assert_eq!((share.of(1_000), share.of(999)), (1, 0));
        for wrong in ["1", "%", "101%", "0.00001%", "-1%", "1.x%"] {
            assert!(wrong.parse::<Share>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn shares_are_rounded_and_neither_nothing_nor_all_unless_they_are() {
        for (part, whole, words) in [
            (0, 0, "0 %"),
            (0, 7, "0 %"),
            (1, 1_000_000, "under 0.01 %"),
            (49, 1_000_000, "under 0.01 %"),
            (50, 1_000_000, "0.01 %"),
            (4, 10_000, "0.04 %"),
            (1, 3, "33.33 %"),
            (2, 3, "66.67 %"),
            (1_234, 10_000, "12.34 %"),
            (12_345, 100_000, "12.35 %"),
            (9_996, 10_000, "99.96 %"),
            (999_949, 1_000_000, "99.99 %"),
            (999_950, 1_000_000, "over 99.99 %"),
            (u64::MAX - 1, u64::MAX, "over 99.99 %"),
            (7, 7, "100 %"),
            (3, 2, "150.00 %"),
        ] {
            assert_eq!(percent(part, whole), words, "{part} of {whole}");
        }
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(moment(971_211_336_000_000), "2000-10-10 20:55:36");
        assert_eq!(duration(2_500_000), "2.500 s");
        for (us, words) in [
            (863_999_963_000, "10 days"),
            (90_000_000_000, "1 day 1 h"),
            (3_601_000_000, "1 h 1 min"),
            (125_000_001, "2 min 6 s"),
            (1_500_000, "1 s 500 ms"),
            (300_000, "300 ms"),
            (7, "7 us"),
            (0, "0 s"),
        ] {
            assert_eq!(about(Duration::from_micros(us)), words);
        }
        assert_eq!(sparkline(&[0, 1, 7, 100]), "▁▂▂█");
    }
}
