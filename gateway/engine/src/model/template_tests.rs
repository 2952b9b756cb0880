use super::*;
use crate::Role;

fn render(source: &str, messages: &[(Role, &str)], opens_answer: bool) -> Result<String, String> {
    let names = TokenNames {
        bos_token: "<s>".into(),
        eos_token: "</s>".into(),
        ..TokenNames::default()
    };
    let messages: Vec<TemplateMessage<'_>> = messages
        .iter()
        .map(|&(role, content)| TemplateMessage::new(role, content))
        .collect();
    Template::compile(source, names)?.render(&messages, &[], 0, opens_answer)
}

#[test]
fn renders_as_model_makers_expect() {
    let hello = [(Role::User, "Hi <b>&'\" ")];
    let cases = [
        (
            "blocks eat their line",
            "{% if true %}\n  {% for m in messages %}\n{{ m.role }}:{{ m.content }}\n{% endfor %}\n{% endif %}\n",
            "user:Hi <b>&'\" \n",
        ),
        (
            "token names",
            "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}",
            "<s>|</s>|",
        ),
        (
            "Python methods",
            "{{ messages[0].content.strip().upper() }}{{ messages[0]['content'].startswith('Hi') }}",
            "HI <B>&'\"True",
        ),
        ("generation prompt", "{% if add_generation_prompt %}go{% endif %}", "go"),
        (
            "JSON as Python writes it",
            "{{ {'b': [1, 2.5, none], 'a': {'x': 'é<\"'}} | tojson }}",
            "{\"b\": [1, 2.5, null], \"a\": {\"x\": \"é<\\\"\"}}",
        ),
        (
            "JSON in ASCII, sorted",
            "{{ {'b': '😀', 'a': []} | tojson(ensure_ascii=true, sort_keys=true) }}",
            "{\"a\": [], \"b\": \"\\ud83d\\ude00\"}",
        ),
        (
            "JSON with indent",
            "{{ {'a': [1, {}], 'b': []} | tojson(indent=2) }}",
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}",
        ),
        (
            "JSON with separators",
            "{{ [1, {'a': 2}] | tojson(separators=[',', ':']) }}",
            "[1,{\"a\":2}]",
        ),
        (
            "training marks",
            "{%- generation -%}a{%- endgeneration -%}b{% generation %}c{% endgeneration %}",
            "abc",
        ),
        (
            "loop controls",
            "{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "01",
        ),
        (
            "macros and namespaces",
            "{% macro f(x) %}[{{ x }}]{% endmacro %}{% set n = namespace(a=1) %}{% set n.a = 2 %}{{ f(n.a) }}",
            "[2]",
        ),
        (
            "undefined is empty",
            "{{ tools }}{% if tools is defined %}x{% endif %}",
            "",
        ),
    ];
    for (name, source, want) in cases {
        assert_eq!(render(source, &hello, true).as_deref(), Ok(want), "{name}");
    }
}

#[test]
fn refusals_are_one_line() {
    let cases = [
        (
            "the template's own words",
            "{{ raise_exception('System role not supported') }}",
            "System role not supported (line 1)",
        ),
        (
            "a runaway loop",
            "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
            "fuel",
        ),
        (
            "a flood",
            "{% for i in range(99999) %}{{ 'x' * 100 }}{% endfor %}",
            "writes too much",
        ),
        (
            "a memory bomb",
            "{% set ns = namespace(x='xxxxxxxx') %}{% for i in range(64) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
            "",
        ),
        ("a syntax error", "a\n{% for %}", "line 2"),
        ("an unknown tag", "{% generation_not %}", "line 1"),
        ("a file", "{% include '/etc/passwd' %}", "include"),
        (
            "an unknown directive",
            "{{ strftime_now('%Q') }}",
            "%Q is not supported",
        ),
    ];
    for (name, source, want) in cases {
        let error = render(source, &[(Role::User, "x")], true).expect_err(name);
        assert!(error.contains(want) && !error.contains('\n'), "{name}: {error}");
    }
}

#[test]
fn time_has_the_directives_that_templates_use() {
    // 2024-02-29 13:05:09 UTC, a Thursday.
    let at = 1_709_211_909;
    assert_eq!(
        strftime("%Y-%m-%d %H:%M:%S %Z %%", at).as_deref(),
        Ok("2024-02-29 13:05:09 UTC %")
    );
    assert_eq!(
        strftime("%A %a, %e. %B %b %y, %I %p", at).as_deref(),
        Ok("Thursday Thu, 29. February Feb 24, 01 PM")
    );
    assert_eq!(strftime("%d %b %Y", 0).as_deref(), Ok("01 Jan 1970"));
    assert_eq!(strftime("%d %b %Y %a", 951_868_800).as_deref(), Ok("01 Mar 2000 Wed"));
    assert_eq!(strftime("%", 0), Err(String::new()));
}
