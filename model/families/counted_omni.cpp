// Qwen2.5-Omni (transformers 5.23 modeling_qwen2_5_omni.py): a thinker with vision and audio
// encoders, a talker, and a vocoder of a diffusion transformer and BigVGAN. Qwen3-ASR
// (modeling_qwen3_asr.py; the repository of Qwen/Qwen3-ASR-0.6B nests the same parts in
// thinker_config and keeps the projector in the encoder).
#include "model/families/counted_vision.hpp"

namespace zeroplan::families {

namespace {

// Qwen2 and Qwen3 with the defaults of Qwen2_5OmniTextConfig and of Qwen3ASRConfig's text model.
constexpr LlamaTraits kOmniText = {.model_type = "qwen2",
                                   .classes = "Qwen2",
                                   .vocabulary = 152064,
                                   .hidden = 3584,
                                   .intermediate = 18944,
                                   .layers = 28,
                                   .heads = 28,
                                   .kv_heads = 4,
                                   .positions = 32768,
                                   .bias = AttentionBias::query_key_value};
constexpr LlamaTraits kAsrText = {.model_type = "qwen3",
                                  .classes = "Qwen3",
                                  .vocabulary = 151936,
                                  .hidden = 2048,
                                  .intermediate = 6144,
                                  .layers = 28,
                                  .heads = 16,
                                  .kv_heads = 8,
                                  .head_dim = 128,
                                  .positions = 65536,
                                  .bias = AttentionBias::by_attention_bias,
                                  .head_norms = HeadNorms::each_head};

std::vector<std::int64_t> sizes_or(const ConfigReader& config,
                                   std::string_view key,
                                   std::vector<std::int64_t> fallback) {
  if (!config.has({key})) return fallback;
  std::vector<std::int64_t> sizes = config.integers({key});
  for (const std::int64_t size : sizes) {
    if (size < 1 || size > 1'000'000) config.problem(key, "positive sizes", std::to_string(size));
  }
  return sizes;
}

// A one-dimensional convolution with bias, as the vocoder has them everywhere.
void conv(ModelBuilder& builder,
          std::string_view name,
          std::int64_t in,
          std::int64_t out,
          std::int64_t kernel) {
  write_convolution(builder, name, {out, in, kernel}, true);
}

struct OmniAudio {
  WhisperLayers layers;
  std::int64_t bins = 0;
  std::int64_t output = 0;
};

OmniAudio read_omni_audio(const ConfigReader& config) {
  OmniAudio audio;
  audio.layers.hidden = config.core({"d_model"}, 1280, SizeKind::width);
  audio.layers.layers = config.core({"encoder_layers"}, 32, SizeKind::layers);
  audio.layers.intermediate = config.core({"encoder_ffn_dim"}, 5120, SizeKind::width);
  audio.bins = config.size({"num_mel_bins"}, 128, SizeKind::width);
  audio.output = config.size({"output_dim"}, 3584, SizeKind::width);
  return audio;
}

void write_omni_audio(ModelBuilder& builder, const OmniAudio& audio) {
  const std::int64_t hidden = audio.layers.hidden;
  const auto tower = builder.in("audio_tower", "Qwen2_5OmniAudioEncoder");
  conv(builder, "conv1", audio.bins, hidden, 3);
  conv(builder, "conv2", hidden, hidden, 3);
  builder.embedding("audio_bos_eos_token", 2, audio.output);
  write_whisper_layers(builder, audio.layers);
  builder.layer_norm("ln_post", hidden);
  builder.linear("proj", hidden, audio.output, true);
}

struct Talker {
  TextSizes text;
  GroupedAttention attention;
  std::int64_t intermediate = 0;
  std::int64_t embedding = 0;  // width of the thinker's states
};

Talker read_talker(const ConfigReader& config) {
  Talker talker;
  talker.text.hidden = config.core({"hidden_size"}, 3584, SizeKind::width);
  talker.text.layers = config.core({"num_hidden_layers"}, 28, SizeKind::layers);
  talker.text.vocabulary = config.core({"vocab_size"}, 8448, SizeKind::vocabulary);
  talker.attention.hidden = talker.text.hidden;
  talker.attention.heads = config.core({"num_attention_heads"}, 28, SizeKind::heads);
  talker.attention.kv_heads = config.size({"num_key_value_heads"}, 4, SizeKind::heads);
  talker.attention.head_dim = config.size({"head_dim"}, 128, SizeKind::width);
  talker.attention.qkv_bias = true;
  talker.intermediate = config.core({"intermediate_size"}, 18944, SizeKind::width);
  talker.embedding = config.size({"embedding_size"}, 3584, SizeKind::width);
  return talker;
}

void write_talker(ModelBuilder& builder, const Talker& talker) {
  const std::int64_t hidden = talker.text.hidden;
  const auto scope = builder.in("talker", "Qwen2_5OmniTalkerForConditionalGeneration");
  builder.linear("thinker_to_talker_proj", talker.embedding, hidden, true);
  {
    const auto model = builder.in("model", "Qwen2_5OmniTalkerModel");
    builder.embedding("embed_tokens", talker.text.vocabulary, talker.embedding);
    {
      const auto list = builder.in("layers", "ModuleList");
      for (std::int64_t index = 0; index < talker.text.layers; ++index) {
        const auto layer = builder.in(index, "Qwen2_5OmniDecoderLayer");
        write_attention(builder, talker.attention);
        {
          const auto mlp = builder.in("mlp", "Qwen2MLP");
          write_gated(builder, hidden, talker.intermediate);
        }
        builder.norm("input_layernorm", hidden, "RMSNorm");
        builder.norm("post_attention_layernorm", hidden, "RMSNorm");
      }
    }
    builder.norm("norm", hidden, "RMSNorm");
  }
  builder.linear("codec_head", hidden, talker.text.vocabulary, false);
}

// ECAPA-TDNN: the speaker encoder inside the diffusion transformer.
struct SpeakerEncoder {
  std::vector<std::int64_t> channels;
  std::vector<std::int64_t> kernels;
  std::int64_t attention = 0;
  std::int64_t scale = 0;    // Res2Net: this many groups, all but the first convolved
  std::int64_t squeeze = 0;  // squeeze-and-excitation
  std::int64_t output = 0;
};

struct Diffusion {
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t inner = 0;  // heads * head_dim
  std::int64_t expansion = 0;
  std::int64_t mel = 0;
  std::int64_t speaker = 0;     // enc_emb_dim, the given speaker embedding
  std::int64_t code_width = 0;  // emb_dim
  std::int64_t codes = 0;
  SpeakerEncoder encoder;
};

Diffusion read_diffusion(const ConfigReader& config) {
  Diffusion dit;
  dit.hidden = config.size({"hidden_size", "dim"}, 1024, SizeKind::width);
  dit.layers = config.size({"num_hidden_layers", "depth"}, 22, SizeKind::layers);
  dit.inner = config.size({"num_attention_heads", "heads"}, 16, SizeKind::heads) *
              config.size({"head_dim"}, 64, SizeKind::width);
  dit.expansion = config.size({"ff_mult"}, 2, SizeKind::width);
  dit.mel = config.size({"mel_dim"}, 80, SizeKind::width);
  dit.speaker = config.size({"enc_emb_dim"}, 192, SizeKind::width);
  dit.code_width = config.size({"emb_dim"}, 512, SizeKind::width);
  dit.codes = config.size({"num_embeds"}, 8193, SizeKind::vocabulary) + 1;
  SpeakerEncoder& encoder = dit.encoder;
  encoder.channels = sizes_or(config, "enc_channels", {256, 256, 256, 256, 768});
  encoder.kernels = sizes_or(config, "enc_kernel_sizes", {5, 3, 3, 3, 1});
  if (encoder.channels.size() < 3 || encoder.channels.size() != encoder.kernels.size()) {
    config.problem("enc_kernel_sizes",
                   "as many entries as enc_channels, three or more",
                   phrase("{} entries", encoder.kernels.size()));
  }
  encoder.attention = config.size({"enc_attention_channels"}, 64, SizeKind::width);
  encoder.scale = config.size({"enc_res2net_scale"}, 2, SizeKind::width);
  encoder.squeeze = config.size({"enc_se_channels"}, 64, SizeKind::width);
  encoder.output = config.size({"enc_dim"}, 128, SizeKind::width);
  return dit;
}

void write_time_delay(ModelBuilder& builder,
                      std::string_view name,
                      std::int64_t in,
                      std::int64_t out,
                      std::int64_t kernel) {
  const auto scope = builder.in(name, "TimeDelayNetBlock");
  conv(builder, "conv", in, out, kernel);
}

void write_speaker_block(ModelBuilder& builder, const SpeakerEncoder& encoder, std::size_t index) {
  const std::int64_t channels = encoder.channels[index];
  const std::int64_t group = channels / encoder.scale;
  write_time_delay(builder, "tdnn1", encoder.channels[index - 1], channels, 1);
  {
    const auto res2net = builder.in("res2net_block", "Res2NetBlock");
    const auto list = builder.in("blocks", "ModuleList");
    for (std::int64_t part = 0; part + 1 < encoder.scale; ++part) {
      write_time_delay(builder, std::to_string(part), group, group, encoder.kernels[index]);
    }
  }
  write_time_delay(builder, "tdnn2", channels, channels, 1);
  const auto squeeze = builder.in("se_block", "SqueezeExcitationBlock");
  conv(builder, "conv1", channels, encoder.squeeze, 1);
  conv(builder, "conv2", encoder.squeeze, channels, 1);
}

void write_speaker_encoder(ModelBuilder& builder, const SpeakerEncoder& encoder, std::int64_t mel) {
  const auto scope = builder.in("spk_encoder", "ECAPA_TimeDelayNet");
  const std::int64_t last = encoder.channels.back();
  {
    const auto list = builder.in("blocks", "ModuleList");
    write_time_delay(builder, "0", mel, encoder.channels[0], encoder.kernels[0]);
    for (std::size_t index = 1; index + 1 < encoder.channels.size(); ++index) {
      const auto block =
          builder.in(static_cast<std::int64_t>(index), "SqueezeExcitationRes2NetBlock");
      write_speaker_block(builder, encoder, index);
    }
  }
  write_time_delay(builder, "mfa", last, last, encoder.kernels.back());
  {
    const auto pooling = builder.in("asp", "AttentiveStatisticsPooling");
    write_time_delay(builder, "tdnn", 3 * last, encoder.attention, 1);
    conv(builder, "conv", encoder.attention, last, 1);
  }
  conv(builder, "fc", 2 * last, encoder.output, 1);
}

void write_diffusion(ModelBuilder& builder, const Diffusion& dit) {
  const std::int64_t hidden = dit.hidden;
  const auto scope = builder.in("code2wav_dit_model", "Qwen2_5OmniToken2WavDiTModel");
  {
    const auto time = builder.in("time_embed", "DiTTimestepEmbedding");
    builder.linear("time_mlp.0", 256, hidden, true);  // 256 sinusoids
    builder.linear("time_mlp.2", hidden, hidden, true);
  }
  builder.embedding("text_embed.codec_embed", dit.codes, dit.code_width);
  {
    const auto embed = builder.in("input_embed", "DiTInputEmbedding");
    builder.linear(
        "proj", dit.mel + dit.encoder.output + dit.speaker + dit.code_width, hidden, true);
    write_speaker_encoder(builder, dit.encoder, dit.mel);
  }
  {
    const auto list = builder.in("transformer_blocks", "ModuleList");
    for (std::int64_t index = 0; index < dit.layers; ++index) {
      const auto block = builder.in(index, "DiTDecoderLayer");
      builder.linear("attn_norm.linear", hidden, 6 * hidden, true);
      for (const char* name : {"attn.to_q", "attn.to_k", "attn.to_v"}) {
        builder.linear(name, hidden, dit.inner, true);
      }
      builder.linear("attn.to_out.0", dit.inner, hidden, true);
      builder.linear("ff.ff.0", hidden, dit.expansion * hidden, true);
      builder.linear("ff.ff.3", dit.expansion * hidden, hidden, true);
    }
  }
  builder.linear("norm_out.linear", hidden, 2 * hidden, true);
  builder.linear("proj_out", hidden, dit.mel, true);
}

struct BigVgan {
  std::int64_t mel = 0;
  std::int64_t channels = 0;
  std::vector<std::int64_t> upsample;  // kernels of the transposed convolutions
  std::vector<std::int64_t> residual;  // kernels of the blocks after each
};

BigVgan read_bigvgan(const ConfigReader& config) {
  BigVgan vocoder;
  vocoder.mel = config.size({"mel_dim"}, 80, SizeKind::width);
  vocoder.channels = config.size({"upsample_initial_channel"}, 1536, SizeKind::width);
  vocoder.upsample = sizes_or(config, "upsample_kernel_sizes", {11, 7, 4, 4, 4, 4});
  vocoder.residual = sizes_or(config, "resblock_kernel_sizes", {3, 7, 11});
  if (vocoder.upsample.size() > 12 || vocoder.channels >> vocoder.upsample.size() == 0) {
    config.problem("upsample_kernel_sizes",
                   "at most as many as halve the channels to one",
                   phrase("{} entries", vocoder.upsample.size()));
  }
  return vocoder;
}

void write_snake(ModelBuilder& builder, std::string_view name, std::int64_t channels) {
  const auto scope = builder.in(name, "SnakeBeta");
  builder.parameter("alpha", {channels});
  builder.parameter("beta", {channels});
}

void write_bigvgan(ModelBuilder& builder, const BigVgan& vocoder) {
  const auto scope = builder.in("code2wav_bigvgan_model", "Qwen2_5OmniToken2WavBigVGANModel");
  conv(builder, "conv_pre", vocoder.mel, vocoder.channels, 7);
  std::int64_t channels = vocoder.channels;
  for (std::size_t stage = 0; stage < vocoder.upsample.size(); ++stage) {
    const auto level = builder.in("ups" + std::to_string(stage), "Upsampling");
    {
      // A transposed convolution keeps its input channels first.
      const auto up = builder.in("up", "ConvTranspose1d");
      builder.parameter("weight", {channels, channels / 2, vocoder.upsample[stage]});
      builder.parameter("bias", {channels / 2});
    }
    channels /= 2;
    for (std::size_t block = 0; block < vocoder.residual.size(); ++block) {
      const auto amp = builder.in("resblock" + std::to_string(block), "AMPBlock");
      for (int index = 0; index < 3; ++index) {  // the class has three of each
        const std::string at = std::to_string(index);
        conv(builder, "convs1." + at, channels, channels, vocoder.residual[block]);
        conv(builder, "convs2." + at, channels, channels, vocoder.residual[block]);
      }
      for (int index = 0; index < 6; ++index) {
        write_snake(builder, "activations." + std::to_string(index), channels);
      }
    }
  }
  write_snake(builder, "activation_post", channels);
  write_convolution(builder, "conv_post", {1, channels, 7}, false);
}

}  // namespace

Model build_qwen2_5_omni(const FamilyInput& input) {
  only_head(input, Head::conditional_generation);
  const ConfigReader& config = input.config;
  const auto thinker = need_child(config, "thinker_config", "Qwen2_5OmniThinkerConfig");
  config.throw_problems();
  const auto audio_config = need_child(*thinker, "audio_config", "Qwen2_5OmniAudioEncoderConfig");
  const auto text = need_child(*thinker, "text_config", "Qwen2_5OmniTextConfig");
  config.throw_problems();
  const OmniAudio audio = read_omni_audio(*audio_config);
  const LlamaLike llama = read_llama_like(*text, kOmniText);
  const PatchVision vision = read_qwen2_vision(*thinker, true, llama.attention.hidden);
  const bool tied = thinker->flag({"tie_word_embeddings"}, false);
  const bool speaks = config.flag({"enable_audio_output"}, true, true);
  Talker talker;
  Diffusion dit;
  BigVgan vocoder;
  if (speaks) {
    const auto talks = need_child(config, "talker_config", "Qwen2_5OmniTalkerConfig");
    const auto wave = need_child(config, "token2wav_config", "Qwen2_5OmniToken2WavConfig");
    config.throw_problems();
    const auto diffuses = need_child(*wave, "dit_config", "Qwen2_5OmniDiTConfig");
    const auto sounds = need_child(*wave, "bigvgan_config", "Qwen2_5OmniBigVGANConfig");
    config.throw_problems();
    talker = read_talker(*talks);
    dit = read_diffusion(*diffuses);
    vocoder = read_bigvgan(*sounds);
  }
  config.throw_problems();

  Model model;
  model.architecture = architecture_or(input, "Qwen2_5OmniForConditionalGeneration");
  ModelBuilder builder(model.architecture);
  {
    const auto scope = builder.in("thinker", "Qwen2_5OmniThinkerForConditionalGeneration");
    int embedding = -1;
    {
      const auto parts = builder.in("model", "Qwen2_5OmniThinkerModel");
      write_omni_audio(builder, audio);
      write_qwen2_vision(builder, vision);
      const auto language = builder.in("language_model", "Qwen2_5OmniThinkerTextModel");
      embedding = write_llama_trunk(builder, llama);
    }
    write_language_head(builder, llama.attention.hidden, llama.vocabulary, tied, embedding);
  }
  if (speaks) {
    write_talker(builder, talker);
    const auto wave = builder.in("token2wav", "Qwen2_5OmniToken2WavModel");
    write_diffusion(builder, dit);
    write_bigvgan(builder, vocoder);
  }
  builder.move_into(model);
  return model;
}

namespace {

struct AsrAudio {
  WhisperLayers layers;
  std::int64_t bins = 0;
  std::int64_t convolved = 0;  // channels of the three convolutions
  std::int64_t output = 0;
};

AsrAudio read_asr_audio(const ConfigReader& config) {
  AsrAudio audio;
  audio.layers.hidden = config.core({"d_model"}, 1024, SizeKind::width);
  audio.layers.layers = config.core({"encoder_layers"}, 24, SizeKind::layers);
  audio.layers.intermediate = config.core({"encoder_ffn_dim"}, 4096, SizeKind::width);
  audio.layers.key_bias = true;
  audio.bins = config.size({"num_mel_bins"}, 128, SizeKind::width);
  audio.convolved = config.size({"downsample_hidden_size"}, 480, SizeKind::width);
  audio.output = config.size({"output_dim"}, 3584, SizeKind::width);
  return audio;
}

void write_asr_audio(ModelBuilder& builder, const AsrAudio& audio) {
  const std::int64_t hidden = audio.layers.hidden;
  {
    const auto tower = builder.in("audio_tower", "Qwen3ASREncoder");
    write_whisper_layers(builder, audio.layers);
    builder.layer_norm("ln_post", hidden);
    std::int64_t bins = audio.bins;
    for (int index = 1; index <= 3; ++index) {
      const std::int64_t channels = index == 1 ? 1 : audio.convolved;
      const std::string name = "conv2d" + std::to_string(index);
      write_convolution(builder, name, {audio.convolved, channels, 3, 3}, true);
      bins = (bins + 1) / 2;  // stride 2
    }
    builder.linear("conv_out", audio.convolved * bins, hidden, false);
  }
  const auto projector = builder.in("multi_modal_projector", "Qwen3ASRMultiModalProjector");
  builder.linear("linear_1", hidden, hidden, true);
  builder.linear("linear_2", hidden, audio.output, true);
}

}  // namespace

Model build_qwen3_asr(const FamilyInput& input) {
  only_head(input, Head::conditional_generation);
  const ConfigReader& config = input.config;
  const auto thinker = config.child({"thinker_config"}, "Qwen3ASRThinkerConfig");
  const ConfigReader& outer = thinker ? *thinker : config;
  const auto audio_config = need_child(outer, "audio_config", "Qwen3ASREncoderConfig");
  const auto text = need_child(outer, "text_config", "Qwen3Config");
  config.throw_problems();
  const AsrAudio audio = read_asr_audio(*audio_config);
  const LlamaLike llama = read_llama_like(*text, kAsrText);
  // Qwen3ASRConfig of transformers ties by default, that of the repository does not.
  const bool tied =
      outer.flag({"tie_word_embeddings"}, text->flag({"tie_word_embeddings"}, !thinker));
  config.throw_problems();

  Model model;
  model.architecture = architecture_or(input, "Qwen3ASRForConditionalGeneration");
  ModelBuilder builder(model.architecture);
  int embedding = -1;
  {
    const auto scope = builder.in("model", "Qwen3ASRModel");
    write_asr_audio(builder, audio);
    const auto language = builder.in("language_model", "Qwen3Model");
    embedding = write_llama_trunk(builder, llama);
  }
  write_language_head(builder, llama.attention.hidden, llama.vocabulary, tied, embedding);
  builder.move_into(model);
  return model;
}

}  // namespace zeroplan::families
