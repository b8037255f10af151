// FunctionCover and FunctionLead.
#include "invariants/traincheck/conformance/small_trace_for_testing.h"

namespace traincheck {
namespace {

class OrderTest : public SmallTraceTest {
 protected:
  static Json Cover(const std::vector<Json>& functions,
                    const Json& precondition = Unconditional()) {
    return Rule("FunctionCoverRelation", functions, "func_cover", precondition);
  }
  static Json Lead(const std::vector<Json>& functions,
                   const Json& precondition = Unconditional()) {
    return Rule("FunctionLeadRelation", functions, "func_lead", precondition);
  }
  // A letter is a call of m.LETTER; what stands in brackets runs within the
  // one before; a digit begins that step.
  void Run(const std::string& calls) {
    for (size_t i = 0; i < calls.size(); ++i) {
      const bool parent = i + 1 < calls.size() && calls[i + 1] == '(';
      if (calls[i] == ')') {
        End();
      } else if (calls[i] >= '0' && calls[i] <= '9') {
        Step(calls[i] - '0');
      } else if (calls[i] != '(') {
        Begin(std::string("m.") + calls[i]);
        if (!parent) End();
      }
    }
  }
  std::string CoverIn(const std::string& calls) {
    lines().clear();
    Run(calls);
    return Verdict(Cover({a_, b_}));
  }
  std::string LeadIn(const std::string& calls) {
    lines().clear();
    Run(calls);
    return Verdict(Lead({a_, b_}));
  }

  const Json a_ = Function("m.a");
  const Json b_ = Function("m.b");
};

TEST_F(OrderTest, ACoverThatHoldsIsNeverTriggered) {
  EXPECT_EQ(CoverIn("abab"), "not triggered");
  EXPECT_EQ(CoverIn("aabxab"), "not triggered");
}

TEST_F(OrderTest, ACoverNeedsOneCallForEach) {
  EXPECT_EQ(CoverIn("abb"), "failed");
  EXPECT_EQ(CoverIn("ba"), "failed");
  // Within the second b, and so not before it.
  EXPECT_EQ(CoverIn("abxb(a)"), "failed");
}

TEST_F(OrderTest, ACoverOfAFunctionThatIsNotThereFails) {
  EXPECT_EQ(CoverIn("bxb"), "failed");
  // Nothing stands beside b.
  EXPECT_EQ(CoverIn("b"), "not triggered");
  // Nor beside each other: b runs within a only.
  EXPECT_EQ(CoverIn("a(b)"), "not triggered");
  EXPECT_EQ(CoverIn("xa(b)"), "failed");
  EXPECT_EQ(CoverIn("a(b)a(b)"), "failed");
}

TEST_F(OrderTest, ACoverLooksAtCallsThatSatisfyThePreconditionOnly) {
  const Json first = Where(Clause("constant", "meta_vars.step", {1}));
  Run("0b1ab2b");
  EXPECT_EQ(Verdict(Cover({a_, b_})), "failed");
  EXPECT_EQ(Verdict(Cover({a_, b_}, first)), "not triggered");
  lines().clear();
  Run("0ax1bb");
  EXPECT_EQ(Verdict(Cover({a_, b_}, first)), "failed");
}

TEST_F(OrderTest, ALeadNeedsOneCallAfterEachButTheLast) {
  EXPECT_EQ(LeadIn("abab"), "passed");
  EXPECT_EQ(LeadIn("abax"), "passed");
  EXPECT_EQ(LeadIn("axab"), "failed");
  EXPECT_EQ(LeadIn("aab"), "failed");
  EXPECT_EQ(LeadIn("ba"), "passed");
}

TEST_F(OrderTest, ALeadOfAFunctionThatIsNotThereFails) {
  EXPECT_EQ(LeadIn("ax"), "failed");
  EXPECT_EQ(LeadIn("a"), "not triggered");
  EXPECT_EQ(LeadIn("bx"), "not triggered");
}

TEST_F(OrderTest, ACallWithinItselfFails) {
  EXPECT_EQ(LeadIn("xa(a)b"), "failed");
  lines().clear();
  Run("axb(b)");
  EXPECT_EQ(Verdict(Cover({a_, b_})), "failed");
}

TEST_F(OrderTest, AChainIsCheckedPairByPair) {
  Run("abcabc");
  const Json c = Function("m.c");
  EXPECT_EQ(Verdict(Lead({a_, b_, c})), "passed");
  EXPECT_EQ(Verdict(Cover({a_, b_, c})), "not triggered");
  EXPECT_EQ(Verdict(Lead({a_, c, b_})), "passed");
  EXPECT_EQ(Verdict(Cover({c, b_})), "failed");
}

TEST_F(OrderTest, ManyCallsInARowAreLeftAside) {
  // Two calls are four lines.
  EXPECT_EQ(LeadIn("aaxbx"), "failed");
  EXPECT_EQ(LeadIn("aaaxbx"), "not triggered");
  // A state between them ends the row.
  lines().clear();
  Run("aa");
  State("w", {{"data", 1}});
  Run("aaxbx");
  EXPECT_EQ(Verdict(Lead({a_, b_})), "failed");
}

TEST_F(OrderTest, FunctionsThatTrainCheckSkipsAreLeftAside) {
  for (const char* name :
       {"torch.nn.modules.module.Module.train", "torch.autograd.backward",
        "m._private", "m.<locals>.f"}) {
    lines().clear();
    Call(name);
    Call("m.x");
    EXPECT_EQ(Verdict(Lead({Function(name), b_})), "not triggered") << name;
  }
}

TEST_F(OrderTest, ThreadsAreCheckedOnTheirOwn) {
  Run("abab");
  On(1, 11);
  Run("bxb");
  EXPECT_EQ(Verdict(Cover({a_, b_})), "failed");
  EXPECT_EQ(Verdict(Lead({a_, b_})), "passed");
}

TEST_F(OrderTest, ACallWithoutEndStopsWhereItIsCompared) {
  Begin("m.main");
  Run("abab");
  const std::string words = "the call id1 of m.main has no end";
  EXPECT_EQ(Verdicts({Lead({a_, b_}), Cover({Function("m.x"), b_})}),
            (std::vector<std::string>{words, words}));
  // Before that it has no function to compare it with.
  lines().clear();
  Begin("m.main");
  EXPECT_EQ(Verdict(Lead({a_, b_})), "not triggered");
}

}  // namespace
}  // namespace traincheck
