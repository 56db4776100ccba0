//! Sizes as the API writes them (`50Gi`, `1.5G`, `1e9`), compared as whole bytes. Pure.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The factor of each suffix, as numerator and denominator.
fn scale(suffix: &str) -> Option<(u128, u128)> {
    Some(match suffix {
        "" => (1, 1),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (1000_u128.pow(2), 1),
        "G" => (1000_u128.pow(3), 1),
        "T" => (1000_u128.pow(4), 1),
        "P" => (1000_u128.pow(5), 1),
        "E" => (1000_u128.pow(6), 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = 10_u128.checked_pow(exponent.unsigned_abs())?;
            if exponent < 0 { (1, power) } else { (power, 1) }
        }
    })
}

/// Whole bytes, a fraction rounded up as the API server does. `None` for what is no quantity or is negative.
pub(super) fn bytes(quantity: &Quantity) -> Option<u128> {
    let text = quantity.0.trim();
    let end = text
        .find(|character: char| !(character.is_ascii_digit() || character == '.'))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let (numerator, denominator) = scale(suffix)?;
    let divisor =
        denominator.checked_mul(10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?)?;
    Some(digits.checked_mul(numerator)?.div_ceil(divisor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_the_api_writes_them() {
        let table = [
            ("50Gi", Some(50 << 30)),
            ("50G", Some(50_000_000_000)),
            ("1.5Ki", Some(1536)),
            ("1e3", Some(1000)),
            ("1E", Some(1_000_000_000_000_000_000)),
            ("100m", Some(1)),
            ("0", Some(0)),
            ("", None),
            ("Gi", None),
            ("-1", None),
            ("1Zi", None),
            ("99999999999999999999999999999999999999999999", None),
        ];
        for (text, expected) in table {
            assert_eq!(bytes(&Quantity(text.to_owned())), expected, "{text}");
        }
    }
}
