"""What Jinja2, as transformers sets it up for chat templates, makes of small templates, one for each feature.

    pip install transformers==5.24.0 jinja2==3.1.6
    python jinja_cases.py > ../chat_templates/jinja.json

Each case: template, and rendered or error.
"""

import json

from transformers.utils.chat_template_utils import render_jinja_template

MESSAGES = [
    {"role": "user", "content": "Hello\nx"},
    {"role": "assistant", "content": "Hi"},
    {"role": "user", "content": "Bye"},
]
VARIABLES = {
    "d": {
        "name": "get_weather",
        "description": "temp > 10 & humidity < 50 (user's choice)",
        "z": [1, {"k": "é😀"}],
        "parameters": {},
    }
}
TEMPLATES = r'''{{ true }} {{ none }} {{ 1.0 }} {{ 3/2 }} {{ 7//2 }} {{ 2**3 }} {{ -7 % 3 }}
{{ [1,"a'b",none,true] }} {{ {"a": 1, "b": [1.5]} }} {{ (1,2) }} {{ "é\n" }} {{ ["é\n", 'q"'] }}
{{ "abc"[::-1] }} {{ [1,2,3][::-1] }} {{ "abc"[1:] }} {{ "abc"[-1] }} {{ messages[-1].content }} {{ messages[::-1][0].content }}
{% for m in messages %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ loop.previtem.content if loop.previtem else "-" }}{{ loop.nextitem is defined }}{{ loop.revindex0 }}{{ loop.length }} {% endfor %}
{{ d | tojson }} {{ d | tojson(indent=2) }} {{ d | tojson(separators=(",", ":")) }} {{ d|tojson(sort_keys=true) }} {{ d|tojson(ensure_ascii=true) }} {{ [] | tojson(indent=2) }}{{ {} | tojson(indent=4) }}
{{ "a,b,,c".split(",") }} {{ " a  b ".split() }} {{ "a b c".split(" ", 1) }} {{ "abc".split("b")[-1] }} {{ "a-b-c".rsplit("-", 1) }} {{ "a-b-c".rsplit("-") }}
{{ "a</think>b</think>c".split("</think>")[-1].lstrip("\n") }} {{ "abc".startswith("a") }} {{ "abc".endswith(("b","c")) }} {{ "aXb".replace("X","-") }} {{ "ab".upper() }} {{ "AB".lower() }} {{ "ab cd".title() }} {{ "ab".capitalize() }}
{{ "abc".find("c") }} {{ "abcabc".count("b") }} {{ "-".join(["a","b"]) }} {{ "  x ".strip() }} {{ "xxaxx".strip("x") }} {{ "a\nb".splitlines() }} {{ "12".isdigit() }} {{ "abc".removeprefix("a") }} {{ "abc".removesuffix("c") }}
{{ "{} and {}".format("a", 1) }} {{ "%05.2f" | format(3.14159) }} {{ "a" ~ 1 ~ none ~ true }}
{% set ns = namespace(x=0, l=[]) %}{% for i in range(5) %}{% if i == 3 %}{% break %}{% endif %}{% if i == 1 %}{% continue %}{% endif %}{% set ns.x = ns.x + i %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.x }}{{ ns.l }}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in d|items %}{{ k }}{% endfor %}{{ d.keys() | list }} {{ d.values() | list }} {{ d | dictsort }} {{ d.get("zz", "def") }} {{ d.get("name") }} {{ d | length }}
{{ "s" is iterable }} {{ "s" is sequence }} {{ d is mapping }} {{ d is sequence }} {{ d is iterable }} {{ 1 is iterable }} {{ none is none }} {{ zz is defined }} {{ zz is none }} {{ 1 is number }} {{ true is boolean }} {{ 1.0 is float }} {{ 1 is integer }} {{ true is number }} {{ "a" is string }} {{ zz is iterable }} {{ zz is sequence }} {{ messages is sequence }}
{%- macro f(x, y=2) -%} [{{ x }}|{{ y }}|{{ caller() if caller else "" }}] {%- endmacro -%}{{ f(1) }}{{ f(1, y=3) }}{% call f(9) %}body{% endcall %}
{% filter upper %}abc{% endfilter %} {% set b %}blk {{ 1 }}{% endset %}{{ b | trim }} {% generation %}gen{% endgeneration %} {%- generation -%} g2 {%- endgeneration -%} x
{{ messages | map(attribute="role") | join(",") }} {{ messages | selectattr("role", "equalto", "user") | list | length }} {{ messages | rejectattr("role", "eq", "user") | map(attribute="content") | list }} {{ [3,1,2] | sort | first }} {{ [1,2] | last }} {{ [1,2,2] | unique | list }} {{ "x" | default("y") }} {{ zz | default("y") }} {{ none | default("y") }} {{ "" | default("y", true) }}
{{ "a" in "abc" }} {{ "role" in messages[0] }} {{ 1 not in [2] }} {{ 1 if false }}|{{ zz }}|{{ messages[0].zz }}|{{ not zz }} {{ 1 == 1.0 }} {{ "a" < "b" }} {{ 1 < 2 < 3 }}
{{ "a" * 3 }} {{ [1] * 2 }} {{ [1] + [2] }} {{ 5 | string + "x" }} {{ "5" | int + 1 }} {{ "2.5" | float }} {{ 3.7 | int }} {{ 3.14159 | round(2) }} {{ 2.5 | round }} {{ [1,2,3] | sum }} {{ "abc" | length }} {{ "abc" | reverse }} {{ "<&>" | e }} {{ "a b" | replace(" ", "_") }}
{{ dict(a=1) }} {{ range(3) | list }} {{ d.parameters }} {{ d["name"] }} {{ messages[0]["role"] }} {{ loop is defined }} {{ "a" "b" }}
{% if messages[0].role == "user" and not tools %}yes{% elif x %}no{% else %}else{% endif %} {% raw %}{{ raw }}{% endraw %} {# comment #} {{- " trimmed " -}}  x
{{ raise_exception("boom " ~ 1) }}
{{ messages[5].content }}
{{ "a" + 1 }}
{{ d.name.foo }}
{{ zz.foo }}
{{ [1,2,3] | tojson }} {{ "é<>&'" | tojson }} {{ 1.0 | tojson }} {{ 1e-7 | tojson }} {{ 123456789012345680000.0 | tojson }} {{ none | tojson }} {{ true | tojson }} {{ "\u0001\x7f" | tojson }} {{ (1,2) | tojson }}
{{ zz | tojson }}
{% set x = messages | list %}{{ x | length }} {% for m in messages if m.role == "user" %}{{ loop.index }}{% else %}none{% endfor %} {% for i in [] %}{% else %}empty{% endfor %} {% with a = 1 %}{{ a }}{% endwith %}
{{ messages[0].content.strip().split("\n")|first }} {{ messages|length - 1 }} {{ (messages|length) > 1 }} {{ messages[1:]|length }} {{ messages[:-1]|length }} {{ "%.2f"|format(2) }} {{ "l1\nl2" | indent(2) }}
{{ "a
b" }}
  {% if true %}
  x
  {% endif %}
 end
'''


def render(template):
    try:
        text, _ = render_jinja_template(conversations=[MESSAGES], tools=None, chat_template=template, **VARIABLES)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"rendered": text[0]}


lines = TEMPLATES.split("\n")
last = lines.index('{{ "a')
cases = [{"template": t} | render(t) for t in lines[:last] + ["\n".join(lines[last:])]]
print(json.dumps({"messages": MESSAGES, "variables": VARIABLES, "cases": cases}, indent=1))
