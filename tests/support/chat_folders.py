"""Small tokenizer folders in the manner of the field's model families, made on the spot."""

import json
from collections.abc import Mapping
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "What is 12 + 30? Answer inside a box.",
    "You are a helpful assistant. user system model turn Cutting Knowledge Date: December 2023 Today Date: 26 Jul 2024",
    "Mira has 3 apples, 41 pears; é ü 数学 → λ\n\nassistant\n",
]

CHATML = (
    "{%- for message in messages -%}\n"
    "    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}\n"
)
QWEN_THINKING = (
    "{%- if messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}"
    "{%- set rest = messages[1:] %}{%- else %}{%- set rest = messages %}{%- endif %}\n"
    "{%- if tools %}{{- tools | tojson }}{%- endif %}\n"
    "{%- for m in rest %}\n"
    "    {%- if m.role == 'assistant' and '</think>' in m.content %}{%- set text = m.content.split('</think>')[-1] %}\n"
    "    {%- else %}{%- set text = m.content %}{%- endif %}\n"
    "    {{- '<|im_start|>' + m.role + '\\n' + text.lstrip('\\n') + '<|im_end|>' + '\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}\n"
    "    {%- if enable_thinking is defined and enable_thinking is false %}\n"
    "    {{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}\n"
    "{%- endif %}"
)
LLAMA = (
    "{{- bos_token }}\n"
    "{%- if not date_string is defined %}{%- set date_string = strftime_now('%d %b %Y') %}{%- endif %}\n"
    "{{- 'Today Date: ' + date_string + '\\n\\n' }}\n"
    "{%- for message in messages %}\n"
    "    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + "
    "'<|eot_id|>' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'system' %}{% continue %}{% endif %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}"
    "{% generation %}{{ ' ' + message['content'] + eos_token }}{% endgeneration %}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for message in messages %}{% set role = 'model' if message['role'] == 'assistant' else "
    "message['role'] %}{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}"
)
DEEPSEEK = (
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"
    "{% set ns = namespace(system='') %}{%- for m in messages %}{%- if m['role'] == 'system' %}"
    "{% set ns.system = m['content'] %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system}}"
    "{%- for m in messages %}{%- if m['role'] == 'user' %}{{'<｜User｜>' + m['content']}}{%- endif %}"
    "{%- if m['role'] == 'assistant' %}{{'<｜Assistant｜>' + m['content'] + '<｜end▁of▁sentence｜>'}}{%- endif %}"
    "{%- endfor %}{% if add_generation_prompt %}{{'<｜Assistant｜><think>\\n'}}{% endif %}"
)


def byte_level(special: list[str], plain: tuple[str, ...] = ()) -> Tokenizer:
    """A byte-level BPE, as Llama 3, Qwen and DeepSeek have it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in plain])
    return tokenizer


def sentence_piece(special: list[str]) -> Tokenizer:
    """A BPE over ▁-marked words with a normaliser, as Gemma and the first Mistral have it."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>", *special], show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def prepend_bos(tokenizer: Tokenizer, bos: str) -> None:
    """Let the post-processor put BOS in front, as Llama 3's does."""
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, tokenizer.token_to_id(bos))]
    )


def save(folder: Path, tokenizer: Tokenizer, config: Mapping[str, object]) -> Path:
    """Write tokenizer.json and tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    full = {"tokenizer_class": "PreTrainedTokenizerFast", **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(full, ensure_ascii=False), encoding="utf-8")
    return folder


def make_family(name: str, folder: Path) -> Path:
    """Write the folder of one family: chatml, qwen, llama, mistral, gemma or deepseek."""
    if name == "chatml":
        tokenizer = byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
        return save(folder, tokenizer, {"eos_token": "<|im_end|>", "bos_token": None, "chat_template": CHATML})
    if name == "qwen":
        tokenizer = byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], ("<think>", "</think>"))
        config = {"eos_token": "<|im_end|>", "add_bos_token": False, "chat_template": QWEN_THINKING}
        return save(folder, tokenizer, config)
    if name == "llama":
        tokenizer = byte_level(["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"])
        prepend_bos(tokenizer, "<|begin_of_text|>")
        tokenizer.enable_truncation(max_length=8)
        tokenizer.enable_padding(length=64)
        template = LLAMA.replace("strftime_now('%d %b %Y')", "'26 Jul 2024'")
        config = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "chat_template": template}
        return save(folder, tokenizer, config)
    if name == "mistral":
        tokenizer = sentence_piece(["<s>", "</s>", "[INST]", "[/INST]"])
        config = {"bos_token": {"content": "<s>", "__type": "AddedToken"}, "eos_token": "</s>", "add_bos_token": True}
        return save(folder, tokenizer, {**config, "chat_template": [{"name": "default", "template": MISTRAL}]})
    if name == "gemma":
        tokenizer = sentence_piece(["<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"])
        prepend_bos(tokenizer, "<bos>")
        save(folder, tokenizer, {"bos_token": "<bos>", "eos_token": "<eos>"})
        (folder / "chat_template.jinja").write_text(GEMMA, encoding="utf-8")
        return folder
    special = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"]
    tokenizer = byte_level(special, ("<think>", "</think>"))
    config = {"bos_token": special[0], "eos_token": special[1], "add_bos_token": True, "chat_template": DEEPSEEK}
    return save(folder, tokenizer, config)


FAMILIES = ("chatml", "qwen", "llama", "mistral", "gemma", "deepseek")
