from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph


async def run(problem, context):
    model = ChatOpenAI(model="gpt-5-mini", base_url=context.base_url, api_key=context.api_key)

    async def answer(state):
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")
    state = await graph.compile().ainvoke({"messages": [("user", problem.problem)]})
    return state["messages"][-1].content
