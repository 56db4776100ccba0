//! Sizes as the API writes them (`512Mi`, `1.5G`, `2e3`), read only to compare them. They are stored as they were sent; a real server
//! rewrites them in their shortest form.

/// Suffixes and their factors.
const SUFFIXES: [(&str, f64); 15] = [
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("Pi", 1_125_899_906_842_624.0),
    ("Ei", 1_152_921_504_606_846_976.0),
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("E", 1e18),
];

/// `None` for what is no quantity.
pub fn parse(text: &str) -> Option<f64> {
    let suffix = SUFFIXES
        .iter()
        .find_map(|(suffix, factor)| text.strip_suffix(suffix).map(|number| (number, *factor)));
    let (number, factor) = suffix.unwrap_or((text, 1.0));
    let plain = |character: char| character.is_ascii_digit() || "+-.eE".contains(character);
    if number.is_empty() || !number.chars().all(plain) {
        return None;
    }
    number.parse::<f64>().ok().map(|number| number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_compare_by_what_they_mean() {
        let cases = [
            ("1Gi", Some(1_073_741_824.0)),
            ("1.5G", Some(1.5e9)),
            ("500m", Some(0.5)),
            ("2e3", Some(2000.0)),
            ("7", Some(7.0)),
            ("", None),
            ("Gi", None),
            ("inf", None),
            ("one", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), expected, "{text}");
        }
    }
}
