#include "runtime/kernels/kernels.hpp"

#include <string>
#include <vector>

#include "base/check.hpp"

namespace zeroplan::runtime {

DType check_operands(const KernelCall& call, std::span<const Operand> operands) {
  const std::vector<OperandUse> uses = operand_uses(call);
  const std::string kernel(name(call.kernel));
  ZP_CHECK(uses.size() == operands.size(), kernel + ": number of operands");
  DType model = DType::fp32;
  bool known = false;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (operands[i].data == nullptr) {
      ZP_CHECK(call.operands[i].from == KernelOperand::From::none,
               kernel + ": operand without memory");
      continue;
    }
    ZP_CHECK(operands[i].elements.count() == uses[i].elements,
             kernel + ": size of operand " + std::to_string(i));
    const DType type = operands[i].dtype;
    switch (uses[i].type) {
      case OperandUse::Type::fp32:
        ZP_CHECK(type == DType::fp32, kernel + ": fp32 operand");
        break;
      case OperandUse::Type::int64:
        ZP_CHECK(type == DType::int64, kernel + ": int64 operand");
        break;
      case OperandUse::Type::model:
        ZP_CHECK(!known || type == model, kernel + ": operands of one format");
        model = type;
        known = true;
        break;
    }
  }
  return model;
}

}  // namespace zeroplan::runtime
