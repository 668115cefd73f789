//! Dates and times, as logs write them.

use chrono::NaiveDate;

const DAY_US: u64 = 86_400_000_000;
const SECOND_US: u64 = 1_000_000;

/// Reads dates, and remembers the last one: the lines of a log have few.
#[derive(Debug, Default)]
pub(super) struct Dates {
    text: [u8; 11],
    /// The beginning of the day with that text, in UTC.
    day_us: u64,
    /// True if a time had a fraction of a second.
    pub(super) saw_fraction: bool,
}

impl Dates {
    /// `10/Oct/2000:13:55:36 -0700`, as nginx and Apache write it.
    pub(super) fn common(&mut self, text: &[u8]) -> Option<u64> {
        let date = text.first_chunk::<11>()?;
        if *date != self.text {
            const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
            let month = MONTHS.chunks(3).position(|month| *month == date[3..6])?;
            let is_written = date[2] == b'/' && date[6] == b'/';
            self.remember(
                *date,
                is_written,
                [number(&date[7..])?, month as u64 + 1, number(&date[..2])?],
            )?;
        }
        let (time, zone) = text[11..].split_first_chunk::<9>()?;
        if time[0] != b':' {
            return None;
        }
        let local_us = self.day_us + time_of_day(&time[1..])?;
        local_us.checked_add_signed(-offset(zone.strip_prefix(b" ").unwrap_or(zone))?)
    }

    /// `2016-04-15T20:17:00.310Z`, with a fraction or without, in UTC unless an offset says otherwise.
    pub(super) fn iso(&mut self, text: &[u8]) -> Option<u64> {
        let (date, rest) = text.split_first_chunk::<10>()?;
        let mut remembered = [0; 11];
        remembered[..10].copy_from_slice(date);
        if remembered != self.text {
            let is_written = date[4] == b'-' && date[7] == b'-';
            let numbers = [
                number(&date[..4])?,
                number(&date[5..7])?,
                number(&date[8..])?,
            ];
            self.remember(remembered, is_written, numbers)?;
        }
        let (time, mut rest) = rest.split_first_chunk::<9>()?;
        if !matches!(time[0], b'T' | b't' | b' ' | b'\t') {
            return None;
        }
        let mut local_us = self.day_us + time_of_day(&time[1..])?;
        if let Some(behind) = rest.strip_prefix(b".").or(rest.strip_prefix(b",")) {
            let digits = behind
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count();
            local_us += fraction_us(&behind[..digits])?;
            self.saw_fraction = true;
            rest = &behind[digits..];
        }
        local_us.checked_add_signed(-offset(rest)?)
    }

    /// A number, with a fraction or without: seconds since the Unix epoch, or a finer unit if it is too large for that.
    pub(super) fn epoch(&mut self, text: &[u8]) -> Option<u64> {
        let dot = memchr::memchr(b'.', text);
        let whole = number(&text[..dot.unwrap_or(text.len())])?;
        let millionths = match dot {
            Some(dot) => fraction_us(&text[dot + 1..])?,
            None => 0,
        };
        let (unit_us, is_of_seconds) = match whole {
            // Before the year 5000, and so on for each unit.
            0..100_000_000_000 => (SECOND_US, true),
            100_000_000_000..100_000_000_000_000 => (1_000, false),
            100_000_000_000_000..100_000_000_000_000_000 => (1, false),
            // Nanoseconds. Digits beyond microseconds are cut off.
            _ => {
                self.saw_fraction = true;
                return Some(whole / 1_000);
            }
        };
        self.saw_fraction |= dot.is_some() || !is_of_seconds;
        Some(whole * unit_us + millionths * unit_us / SECOND_US)
    }

    /// A time in any of these forms.
    pub(super) fn any(&mut self, text: &[u8]) -> Option<u64> {
        match text.get(2..5) {
            Some([b'/', ..]) => self.common(text),
            Some([_, _, b'-']) => self.iso(text),
            _ => self.epoch(text),
        }
    }

    fn remember(
        &mut self,
        text: [u8; 11],
        is_written: bool,
        [year, month, day]: [u64; 3],
    ) -> Option<()> {
        let date = NaiveDate::from_ymd_opt(
            year.try_into().ok()?,
            month.try_into().ok()?,
            day.try_into().ok()?,
        )?;
        let days = date.signed_duration_since(NaiveDate::default()).num_days();
        self.day_us = u64::try_from(days).ok().filter(|_| is_written)? * DAY_US;
        self.text = text;
        Some(())
    }
}

/// Microseconds of `13:55:36`.
fn time_of_day(text: &[u8]) -> Option<u64> {
    let [h, hh, b':', m, mm, b':', s, ss] = text else {
        return None;
    };
    let two = |tens: &u8, ones: &u8| {
        let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
        (tens < 10 && ones < 10).then(|| u64::from(tens) * 10 + u64::from(ones))
    };
    let (hours, minutes, seconds) = (two(h, hh)?, two(m, mm)?, two(s, ss)?);
    // A leap second has the number 60.
    let is_time = hours < 24 && minutes < 60 && seconds <= 60;
    is_time.then(|| (hours * 3_600 + minutes * 60 + seconds) * SECOND_US)
}

/// Microseconds east of UTC: nothing, `Z`, `+0200` or `+02:00`.
fn offset(text: &[u8]) -> Option<i64> {
    let (sign, hours, minutes) = match text {
        b"" | b"Z" | b"z" | b"+0000" => return Some(0),
        [sign, h, hh, b':', m, mm] | [sign, h, hh, m, mm] => (sign, [*h, *hh], [*m, *mm]),
        _ => return None,
    };
    let minutes = i64::try_from(number(&hours)? * 60 + number(&minutes)?).ok()?;
    let offset_us = minutes * 60_000_000;
    match sign {
        b'+' => Some(offset_us),
        b'-' => Some(-offset_us),
        _ => None,
    }
}

/// Microseconds of the digits behind a point. What is finer is cut off.
fn fraction_us(digits: &[u8]) -> Option<u64> {
    let mut six = [b'0'; 6];
    for (place, digit) in six.iter_mut().zip(digits) {
        *place = *digit;
    }
    number(&six).filter(|_| digits.iter().all(u8::is_ascii_digit))
}

/// A whole number of digits alone.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.wrapping_sub(b'0');
        let next = number.checked_mul(10)?.checked_add(digit.into())?;
        (digit < 10).then_some(next)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_moment_is_read_in_every_form() {
        let moment_us = 971_211_336_000_000;
        let mut dates = Dates::default();
        for text in [
            "10/Oct/2000:13:55:36 -0700",
            "10/Oct/2000:20:55:36 +0000",
            "2000-10-10T20:55:36Z",
            "2000-10-10 22:55:36+02:00",
            "971211336",
            "971211336000",
        ] {
            assert_eq!(dates.any(text.as_bytes()), Some(moment_us), "{text}");
        }
        let later = Some(moment_us + 123_456);
        assert_eq!(dates.any(b"2000-10-10T20:55:36.1234567Z"), later);
        assert_eq!(dates.any(b"971211336.123456"), later);
        assert_eq!(dates.any(b"971211336123456"), later);
        assert_eq!(dates.any(b"971211336123.456"), later);
        assert_eq!(dates.any(b"971211336123456.7"), later);
        assert_eq!(dates.any(b"971211336123456789"), later);
        let in_nanoseconds = dates.any(b"1795478400123456789");
        assert_eq!(in_nanoseconds, Some(1_795_478_400_123_456));
        assert!(dates.saw_fraction);
    }

    #[test]
    fn what_is_not_a_time_is_refused() {
        let mut dates = Dates::default();
        for text in [
            "",
            "-",
            "10/Okt/2000:13:55:36 -0700",
            "32/Oct/2000:13:55:36 -0700",
            "10/Oct/2000:24:55:36 -0700",
            "10/Oct/2000:13:55:36 0700",
            "10/Oct/2000 13:55:36 -0700",
            "2000-10-10",
            "2000-10-10T20:55",
            "1.x",
            "12a",
        ] {
            assert_eq!(dates.any(text.as_bytes()), None, "{text}");
        }
    }
}
