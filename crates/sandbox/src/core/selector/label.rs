//! Label selectors in the API's grammar: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`.

use serde_json::Value;

use crate::core::error::{Failure, Outcome};
use crate::core::{meta, names};

#[derive(Clone, Debug, Default)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Above(i64),
    Below(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Symbol(&'static str),
    End,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Token::Word(word) => word,
            Token::Symbol(symbol) => symbol,
            Token::End => "",
        }
    }
}

impl LabelSelector {
    pub fn parse(text: &str) -> Outcome<LabelSelector> {
        Parser {
            tokens: tokens(text),
            position: 0,
        }
        .selector()
        .map_err(Failure::bad_request)
    }

    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    pub fn matches(&self, object: &Value) -> bool {
        let labels = meta::at(object, &["metadata", "labels"]);
        self.requirements.iter().all(|requirement| {
            let value = labels
                .and_then(|labels| labels.get(&requirement.key))
                .and_then(Value::as_str);
            match &requirement.test {
                Test::In(values) => {
                    value.is_some_and(|value| values.iter().any(|wanted| wanted == value))
                }
                Test::NotIn(values) => {
                    value.is_none_or(|value| values.iter().all(|unwanted| unwanted != value))
                }
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::Above(bound) => value
                    .and_then(|value| value.parse::<i64>().ok())
                    .is_some_and(|value| value > *bound),
                Test::Below(bound) => value
                    .and_then(|value| value.parse::<i64>().ok())
                    .is_some_and(|value| value < *bound),
            }
        })
    }
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if first.is_whitespace() {
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let symbol = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"]
            .into_iter()
            .find(|symbol| rest.starts_with(symbol));
        if let Some(symbol) = symbol {
            tokens.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
            continue;
        }
        let end = rest
            .find(|character: char| character.is_whitespace() || "=!(),><".contains(character))
            .unwrap_or(rest.len());
        tokens.push(Token::Word(rest[..end].to_owned()));
        rest = &rest[end..];
    }
    tokens
}

struct Parser {
    tokens: Vec<Token>,
    position: usize,
}

impl Parser {
    fn peek(&self) -> Token {
        self.tokens
            .get(self.position)
            .cloned()
            .unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn selector(mut self) -> Result<LabelSelector, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::Word(_) | Token::Symbol("!") => {
                    requirements.push(
                        self.requirement()
                            .map_err(|error| format!("unable to parse requirement: {error}"))?,
                    );
                    match self.next() {
                        Token::End => break,
                        Token::Symbol(",") => match self.peek() {
                            Token::Word(_) | Token::Symbol("!") => {}
                            token => {
                                return Err(format!(
                                    "found '{}', expected: identifier after ','",
                                    token.text()
                                ));
                            }
                        },
                        token => {
                            return Err(format!(
                                "found '{}', expected: ',' or 'end of string'",
                                token.text()
                            ));
                        }
                    }
                }
                Token::End => break,
                token => {
                    return Err(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        token.text()
                    ));
                }
            }
        }
        Ok(LabelSelector { requirements })
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = self.peek() == Token::Symbol("!");
        if negated {
            self.position += 1;
        }
        let Token::Word(key) = self.next() else {
            return Err("found '', expected: identifier".to_owned());
        };
        if let Some(problem) = names::qualified(&key).first() {
            return Err(format!("<nil>: Invalid value: {key:?}: {problem}"));
        }
        if negated {
            return Ok(Requirement {
                key,
                test: Test::Absent,
            });
        }
        let test = match self.peek() {
            Token::End | Token::Symbol(",") => {
                return Ok(Requirement {
                    key,
                    test: Test::Exists,
                });
            }
            Token::Symbol("=" | "==") => {
                self.position += 1;
                Test::In(vec![self.exact_value(&key)?])
            }
            Token::Symbol("!=") => {
                self.position += 1;
                Test::NotIn(vec![self.exact_value(&key)?])
            }
            Token::Symbol(">") => {
                self.position += 1;
                Test::Above(self.bound()?)
            }
            Token::Symbol("<") => {
                self.position += 1;
                Test::Below(self.bound()?)
            }
            Token::Word(word) if word == "in" => {
                self.position += 1;
                Test::In(self.values(&key)?)
            }
            Token::Word(word) if word == "notin" => {
                self.position += 1;
                Test::NotIn(self.values(&key)?)
            }
            token => {
                return Err(format!(
                    "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                    token.text()
                ));
            }
        };
        Ok(Requirement { key, test })
    }

    fn exact_value(&mut self, key: &str) -> Result<String, String> {
        match self.peek() {
            Token::End | Token::Symbol(",") => Ok(String::new()),
            Token::Word(word) => {
                self.position += 1;
                checked(key, 0, word)
            }
            Token::Symbol(symbol) => Err(format!("found '{symbol}', expected: identifier")),
        }
    }

    fn bound(&mut self) -> Result<i64, String> {
        let token = self.next();
        let text = token.text();
        text.parse().map_err(|_| format!("values[0]: Invalid value: {text:?}: for 'Gt', 'Lt' operators, the value must be an integer"))
    }

    fn values(&mut self, key: &str) -> Result<Vec<String>, String> {
        let open = self.next();
        if open != Token::Symbol("(") {
            return Err(format!("found '{}' expected: '('", open.text()));
        }
        let mut values = Vec::new();
        loop {
            match self.next() {
                Token::Word(word) => values.push(checked(key, values.len(), word)?),
                Token::Symbol(")") if values.is_empty() => return Ok(vec![String::new()]),
                Token::Symbol(",") if values.is_empty() => {
                    values.push(String::new());
                    continue;
                }
                token => {
                    return Err(format!(
                        "found '{}', expected: ',', ')' or identifier",
                        token.text()
                    ));
                }
            }
            match self.next() {
                Token::Symbol(")") => return Ok(values),
                Token::Symbol(",") => {}
                token => return Err(format!("found '{}', expected: ',' or ')'", token.text())),
            }
        }
    }
}

fn checked(key: &str, index: usize, value: String) -> Result<String, String> {
    match names::label_value(&value).first() {
        Some(problem) => Err(format!(
            "values[{index}][{key}]: Invalid value: {value:?}: {problem}"
        )),
        None => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_match_labels() {
        let object =
            json!({"metadata": {"labels": {"tier": "db", "level": "7", "a.example/b": ""}}});
        let cases = [
            ("", true),
            ("tier", true),
            ("!tier", false),
            ("!other", true),
            ("tier=db", true),
            ("tier==db,level", true),
            ("tier!=db", false),
            ("other!=db", true),
            ("tier in (web, db)", true),
            ("tier notin (web,db)", false),
            ("other notin (web)", true),
            ("level>6", true),
            ("level<7", false),
            ("tier>6", false),
            ("a.example/b=", true),
            ("tier=", false),
        ];
        for (text, expected) in cases {
            assert_eq!(
                LabelSelector::parse(text).unwrap().matches(&object),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn bad_selectors_are_refused_in_the_servers_words() {
        let cases = [
            (
                "a b",
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            ),
            (
                "a in (",
                "unable to parse requirement: found '', expected: ',', ')' or identifier",
            ),
            (
                "a===b",
                "unable to parse requirement: found '=', expected: identifier",
            ),
            (
                "=b",
                "found '=', expected: !, identifier, or 'end of string'",
            ),
            (
                "a in b",
                "unable to parse requirement: found 'b' expected: '('",
            ),
            ("a,,b", "found ',', expected: identifier after ','"),
            (
                "x>a",
                "unable to parse requirement: values[0]: Invalid value: \"a\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ];
        for (text, expected) in cases {
            let failure = LabelSelector::parse(text).unwrap_err();
            assert_eq!(
                (failure.code, failure.message.as_str()),
                (400, expected),
                "{text}"
            );
        }
    }
}
