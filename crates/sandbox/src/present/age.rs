//! Durations as `kubectl get` shows them: two units at most, coarser the longer they are.

use jiff::Timestamp;
use serde_json::Value;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;
/// What a missing or unreadable time is shown as.
pub(super) const UNKNOWN: &str = "<unknown>";

/// How long before `now` the time in `value` was.
pub(super) fn since(value: Option<&Value>, now: Timestamp) -> String {
    match value.and_then(Value::as_str).map(str::parse::<Timestamp>) {
        Some(Ok(then)) => human(now.as_second() - then.as_second()),
        Some(Err(_)) => "<invalid>".to_owned(),
        None => UNKNOWN.to_owned(),
    }
}

/// The time from one to the other, or to `now` if there is no other.
pub(super) fn between(
    start: Option<&Value>,
    end: Option<&Value>,
    now: Timestamp,
) -> Option<String> {
    let start = start.and_then(Value::as_str)?.parse::<Timestamp>().ok()?;
    let end = match end.and_then(Value::as_str) {
        Some(text) => text.parse::<Timestamp>().ok()?,
        None => now,
    };
    Some(human(end.as_second() - start.as_second()))
}

pub(super) fn human(seconds: i64) -> String {
    let pair = |large: i64, large_name: char, small: i64, small_name: char| {
        let (first, second) = (seconds / large, seconds % large / small);
        if second == 0 {
            format!("{first}{large_name}")
        } else {
            format!("{first}{large_name}{second}{small_name}")
        }
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => pair(MINUTE, 'm', 1, 's'),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => pair(HOUR, 'h', MINUTE, 'm'),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => pair(DAY, 'd', HOUR, 'h'),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        63_072_000..252_288_000 => pair(YEAR, 'y', DAY, 'd'),
        _ => format!("{}y", seconds / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_get_coarser() {
        for (seconds, expected) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 61, "3h1m"),
            (8 * HOUR, "8h"),
            (2 * DAY + 3 * HOUR, "2d3h"),
            (8 * DAY, "8d"),
            (2 * YEAR + 3 * DAY, "2y3d"),
            (9 * YEAR, "9y"),
        ] {
            assert_eq!(human(seconds), expected, "{seconds}");
        }
    }
}
