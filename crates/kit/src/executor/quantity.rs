//! Kubernetes quantities by value: `1024Mi` is `1Gi`, `0.5` is `500m`. The server rewrites them to a canonical form, so text
//! comparison would see a difference for ever.

/// All quantities are whole numbers of this unit, as in Kubernetes, which rounds up to it.
const NANO_PER_UNIT: u32 = 1_000_000_000;

/// The value in billionths, or `None` if the text is no quantity (or too large to be compared exactly).
pub fn parse_nano(text: &str) -> Option<i128> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let number_end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(number_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let fraction_digits = i32::try_from(fraction.len()).ok()?;
    let (binary_multiplier, decimal_exponent) = suffix_value(suffix)?;
    let scaled = digits
        .checked_mul(binary_multiplier)?
        .checked_mul(i128::from(NANO_PER_UNIT))?;
    let exponent = decimal_exponent.checked_sub(fraction_digits)?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
    let value = if exponent >= 0 {
        scaled.checked_mul(power)?
    } else {
        // Rounds up to the next billionth, as the server does.
        scaled / power + i128::from(scaled % power != 0)
    };
    Some(if negative { -value } else { value })
}

/// A power of two and an exponent of ten.
fn suffix_value(suffix: &str) -> Option<(i128, i32)> {
    Some(match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        other => (1, other.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_amounts_written_differently_are_the_same() {
        for (left, right) in [
            ("1024Mi", "1Gi"),
            ("0.5", "500m"),
            ("1", "1000m"),
            ("1.5Gi", "1536Mi"),
            ("1e3", "1k"),
            ("1E3", "1000"),
            ("2E", "2000P"),
            (".5", "0.5"),
            ("5.", "5"),
            ("+1", "1"),
            ("0", "-0"),
            ("0.1n", "1n"),
            ("1e-3", "1m"),
        ] {
            assert_eq!(parse_nano(left), parse_nano(right), "{left} and {right}");
            assert!(parse_nano(left).is_some(), "{left} is a quantity");
        }
        assert_ne!(parse_nano("50G"), parse_nano("50Gi"));
        assert_ne!(parse_nano("1"), parse_nano("-1"));
    }

    #[test]
    fn what_is_no_quantity_has_no_value() {
        for text in [
            "",
            ".",
            "-",
            "Gi",
            "1gi",
            "1 Gi",
            "1.2.3",
            "0x10",
            "1e",
            "1e99999999999",
            "ten",
            "1KiB",
            "--1",
        ] {
            assert_eq!(parse_nano(text), None, "{text:?}");
        }
        assert_eq!(
            parse_nano(&"9".repeat(60)),
            None,
            "too large to compare exactly"
        );
    }
}
